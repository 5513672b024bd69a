"""The stack sampler: a recorder thread that takes orders from the program through a named pipe."""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fathom.probe.frames import DENSE, FIFO, SPARSE, FrameLayout, ProcessMemory
from fathom.recorder.stacks.codes import Codes, TornError, Walker
from fathom.recorder.stacks.target import SampledProcess

PERIOD = 0.001  # seconds between two samples
FREE = 0.7  # idle cores in clean steps: the recorder uses some of its core
# Share of one core that sampling may use; smaller on small machines without an idle core, where it slows the
# program.
FEW_PROCESSORS, DUTY_OF_FEW, DUTY = 8, 0.02, 0.05
MOST_COST = 0.001  # seconds: cap on the cost of one round, because occasional batch writes cost more
THIN_OUT = 20_000  # samples per stretch after which the period doubles
# Clean steps are sampled to locate rare long steps, at a cost that does not grow with the recording.
SPARSE_PERIOD, SPARSE_THIN_OUT = 0.025, 2_000  # seconds; samples after which it doubles
CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
from dataclasses import asdict
from fathom.probe.frames import NoFramesError, calibrate, thread_state
def rehearsed():
    try:
        print(json.dumps({"layout": asdict(calibrate()), "state": thread_state()}), flush=True)
    except NoFramesError as why:
        print(json.dumps({"why": str(why)}), flush=True)
    sys.stdin.readline()
rehearsed()
"""
PACKAGES = str(Path(__file__).parents[3])
LEAST_S = 0.1  # the system counts in hundredths of a second
_IDLE = ("idle", "iowait")


class StackSampler:
    """Context manager that samples every process that asks. `fault` says why sampling failed or stopped."""

    def __init__(self, raw: Path) -> None:
        self._raw = raw
        few = len(os.sched_getaffinity(0)) < FEW_PROCESSORS
        self._idle = IdleCores() if few else None
        self._duty = DUTY_OF_FEW if few else DUTY
        self._cost = {DENSE: 0.0, SPARSE: 0.0}  # recent processor seconds per round, by rate
        self._targets: dict[int, SampledProcess] = {}
        self._pending = b""
        self._over = False
        self._pipe: int | None = None
        self._thread: threading.Thread | None = None
        self.fault = why_no_stacks()

    def __enter__(self) -> StackSampler:
        if self.fault is None:
            try:
                os.mkfifo(self._raw / FIFO)
                self._pipe = os.open(self._raw / FIFO, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                self.fault = f"creating a named pipe in {self._raw} failed ({error.strerror})"
                return self
            self._thread = threading.Thread(target=self._run, name="fathom-stacks", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is None or self._pipe is None:
            return
        self._over = True
        os.write(self._pipe, b"\n")
        self._thread.join(timeout=5)
        os.close(self._pipe)
        with suppress(OSError):  # the program may have removed or replaced the folder
            (self._raw / FIFO).unlink()

    def _run(self) -> None:
        try:
            self._sample()
            for target in self._targets.values():
                target.end()
        except Exception as error:  # the recording matters more
            self.fault = f"sampling stopped: {getattr(error, 'strerror', None) or error}"

    def _sample(self) -> None:
        assert self._pipe is not None
        due, spent = 0.0, time.thread_time()
        while not self._over:
            active = self._active()
            wait = max(0.0, due - time.monotonic()) if active else None
            if select.select([self._pipe], [], [], wait)[0]:
                self._read()
                spent = time.thread_time()
                continue
            for target in active:
                target.sample()
            before, spent = spent, time.thread_time()
            rate = active[0].rate
            self._cost[rate] += 0.1 * (min(spent - before, MOST_COST) - self._cost[rate])
            due = time.monotonic() + self._pause(active)

    def _active(self) -> list[SampledProcess]:
        """Return the processes to sample: those in a burst, or those in clean steps if none is in a burst."""
        active = [target for target in self._targets.values() if target.on]
        return [target for target in active if target.rate != SPARSE] or active

    def _pause(self, active: list[SampledProcess]) -> float:
        """Return the seconds until the next round, with jitter to avoid lockstep with the program."""
        if active[0].rate == SPARSE:
            period, done = SPARSE_PERIOD, max(target.sparse for target in active) // SPARSE_THIN_OUT
        else:
            period, done = PERIOD, max(target.samples for target in active) // THIN_OUT
        least = self._cost[active[0].rate] / self._duty
        return max(period * (1 << min(20, done)), least) * random.uniform(0.75, 1.25)

    def _read(self) -> None:
        assert self._pipe is not None
        *lines, self._pending = (self._pending + os.read(self._pipe, 65536)).split(b"\n")
        for line in lines:
            try:
                order = json.loads(line)
                self._switch(order["pid"], order["thread"], order["state"], order["rate"], order.get("main"))
            except (ValueError, TypeError, KeyError, OSError):  # an empty line, or a process that has ended
                continue

    def _switch(
        self, pid: int, thread: int, state: int, rate: str | None, main: tuple[int, int] | None
    ) -> None:
        if pid not in self._targets and state:
            self._targets[pid] = SampledProcess(self._raw, pid)
        if state:
            self._mind_idle_cores(rate)
            self._targets[pid].begin(thread, state, rate, main)
        elif pid in self._targets:
            self._targets[pid].end()

    def _mind_idle_cores(self, rate: str | None) -> None:
        """On a small machine, sample a burst as often as on others if clean steps left a core idle."""
        if self._idle and rate == SPARSE:
            self._idle.begin()
        elif self._idle and (idle := self._idle.count()) is not None:
            self._duty = DUTY if idle >= FREE else DUTY_OF_FEW


def why_no_stacks() -> str | None:
    """Return why this process cannot read its children's memory, or None."""
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        scope = 0
    if scope >= 2 and os.geteuid() != 0:
        return f"the kernel forbids reading the memory of a child (kernel.yama.ptrace_scope is {scope})"
    try:
        ProcessMemory(os.getpid()).close()
    except OSError as error:
        return f"reading the memory of processes is not possible here ({error.strerror})"
    return None


def rehearse(python: str) -> str | None:
    """Return why the frames of this Python cannot be read from outside, or None."""
    try:
        child = subprocess.Popen(
            [python, "-c", CHILD, PACKAGES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except OSError as error:
        return f"{python} does not start ({error.strerror})"
    assert child.stdout is not None
    try:
        return _read(child.pid, json.loads(child.stdout.readline() or "{}"))
    except (ValueError, OSError, TornError) as error:
        return f"the frames of {python} could not be read ({error or type(error).__name__})"
    finally:
        child.communicate("\n")


def _read(pid: int, answer: dict) -> str | None:
    if "layout" not in answer:
        return str(answer.get("why", "the probe does not start in this Python"))
    memory, layout = ProcessMemory(pid), FrameLayout(**answer["layout"])
    chain = Walker(memory, layout).walk(answer["state"])
    codes = Codes(memory, layout)
    frames = [codes.frame(chain[i], chain[i + 1]) for i in range(0, len(chain), 2)] if chain else []
    memory.close()
    known = any(frame is not None and frame[0] == "rehearsed" for frame in frames)
    return None if known else "its frames differ from those expected"


def _times() -> list[Any]:
    try:
        import psutil
    except ImportError:  # the target may lack it; then no core counts as idle
        return []
    return psutil.cpu_times(percpu=True)


class IdleCores:
    """Counts the cores that nobody used since the last `begin`, among those that this process may use."""

    def __init__(self, times: Callable[[], list[Any]] = _times, cores: Iterable[int] | None = None) -> None:
        self._times = times
        self._cores = set(os.sched_getaffinity(0) if cores is None else cores)
        self.begin()

    def begin(self) -> None:
        """Begin to count anew."""
        self._before = self._now()

    def count(self) -> float | None:
        """Return the mean number of idle cores; None if it is unknown, or if LEAST_S did not pass."""
        both = list(zip(self._before, self._now(), strict=False))
        if not both or min(now[1] - then[1] for then, now in both) < LEAST_S:
            return None
        return sum((now[0] - then[0]) / (now[1] - then[1]) for then, now in both)

    def _now(self) -> list[tuple[float, float]]:
        """Return the idle and the elapsed seconds of each core."""
        rows = [row._asdict() for core, row in enumerate(self._times()) if core in self._cores]
        guests = ("guest", "guest_nice")  # part of user time
        return [
            (sum(row.get(name, 0.0) for name in _IDLE), sum(v for k, v in row.items() if k not in guests))
            for row in rows
        ]
