"""Run the program once under a setting: a few steps, their times and results; then end it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Event
from time import monotonic
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from fathom.errors import BadInputError, raised
from fathom.probe.knobs import ORDER, SWITCHES
from fathom.recorder import Applied, Plan, child_environment, resolve_command
from fathom.referee import running
from fathom.sounding import StepTimes, step_times
from fathom.tuner.patching.sites import Sites, read_sites
from fathom.tuner.sandbox import Scratch

POLL_S = 0.03
CHUNKS = 8  # groups of consecutive steps, whose means are the samples of a run
LEAST_STEPS = 6
LAST = 20_000  # characters of the program's output that are searched for its message
MESSAGE = 300  # characters of it
PR_SET_PDEATHSIG = 1
SWITCHED = frozenset(SWITCHES)  # acts that can be switched on and off while the program runs
Status = Literal["done", "crashed", "out of memory", "too slow", "not applied", "no steps", "not reached"]
_MEMORY = ("out of memory", "outofmemory", "cannot allocate memory", "memoryerror")


@dataclass(frozen=True)
class Run:
    """One run: `samples` are mean ns per step of consecutive groups of steps, `arrays` the results by name.

    `reached_ns` is the time from the first step to the wanted quality.
    """

    status: Status
    seconds: float
    samples: list[float] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    reached_ns: float | None = None
    why: str = ""

    @property
    def step_ns(self) -> float:
        """The mean time of a step, or the time to the wanted quality."""
        return float(np.mean(self.samples)) if self.reached_ns is None else self.reached_ns


@dataclass(frozen=True)
class Steps:
    """How long a run is: `warm` steps are left out, `counted` are timed, `compared` have their results kept.

    `until` is a loss that ends the run instead.
    """

    warm: int = 5
    counted: int = 20
    compared: int = 10
    until: float | None = None


@dataclass(frozen=True)
class Switches:
    """A run in which settings are switched on and off: steps of the parts of `probe/knobs/switching.py`."""

    warm: int
    skip: int
    every: int
    groups: int

    @property
    def steps(self) -> int:
        return 2 * self.warm + len(ORDER) * self.groups * (self.skip + self.every)


class Runner:
    """Runs `command` in a scratch copy of its folder."""

    def __init__(
        self,
        command: list[str],
        scratch: Scratch,
        folder: Path,
        steps: Steps,
        step_on: str = "auto",
        environment: Mapping[str, str] = os.environ,
        switches: Switches | None = None,
    ) -> None:
        self.command, self.scratch, self.folder, self.switches = command, scratch, folder, switches
        self.steps, self.step_on, self.environment = steps, step_on, environment
        self._cancelled = Event()

    def cancel(self) -> None:
        """End the run in progress, and every later one at once."""
        self._cancelled.set()

    def run(self, setting: Applied, patience_s: float, work: float = 1.0) -> Run:
        """Run the program under `setting` for at most `patience_s`; `work` is a step's relative work."""
        return self._run(setting, patience_s, work, self.steps)

    def can_switch(self, setting: Applied) -> bool:
        """Return whether these settings can be switched on and off while the program runs."""
        only_acts = not setting.environment and not setting.arguments
        return (
            self.switches is not None and only_acts and bool(setting.acts) and set(setting.acts) <= SWITCHED
        )

    def switched(self, setting: Applied, patience_s: float) -> tuple[Run, Run]:
        """Run the program, switching the settings on and off: return its blocks without and with them."""
        assert self.switches is not None
        switched = {"acts": setting.acts, **asdict(self.switches)}
        plan = Plan(depth="surface", settle=0, step_on=self.step_on, switched=switched, count_after=1_000_000)
        recording, ended, seconds = self._timed(Applied(), plan, patience_s)
        reads = _read_switched(recording)
        without, under = (_judged(read, ended, seconds) for read in reads)
        return without, under

    def located(
        self, setting: Applied, patience_s: float, files: Mapping[str, bytes] = MappingProxyType({})
    ) -> tuple[Run, list[Sites]]:
        """Run the program, with other `files`, and find the places in its source that settings act on."""
        self.scratch.changed = files
        try:
            folders = str(self.scratch.cwd), str(self.scratch.folder)
            run = self._run(setting, patience_s, 1.0, replace(self.steps, until=None), folders)
        finally:
            self.scratch.changed = {}
        return run, read_sites(self.folder / "run" / "raw")

    def _run(
        self, setting: Applied, patience_s: float, work: float, steps: Steps, sites: tuple[str, ...] = ()
    ) -> Run:
        warm = steps.warm + _ahead(setting)
        plan = _plan(setting, warm, steps, self.step_on, sites)
        recording, ended, seconds = self._timed(setting, plan, patience_s)
        read = _read(recording, warm, steps.until is not None)
        return _judged(replace(read, samples=[ns / work for ns in read.samples]), ended, seconds)

    def _timed(
        self, setting: Applied, plan: Plan, patience_s: float
    ) -> tuple[Path, tuple[Status, str], float]:
        """Run the program; return its recording, how it ended, and its seconds."""
        recording = self.folder / "run"
        shutil.rmtree(recording, ignore_errors=True)
        (recording / "raw").mkdir(parents=True)
        self.scratch.renew()
        plan.write(recording / "raw")
        began = monotonic()
        ended = self._started(setting, recording / "raw", patience_s)
        return recording, ended, monotonic() - began

    def _started(self, setting: Applied, raw: Path, patience_s: float) -> tuple[Status, str]:
        """Start the program and wait for its steps; return how it ended, and its message."""
        path, command = resolve_command(self.scratch.words(setting.words(self.command)), self.environment)
        around = child_environment(setting.variables(self.environment), raw)
        with open(self.folder / "output", "w+", errors="replace") as said:  # noqa: PTH123
            options: dict[str, Any] = {"env": around, "cwd": self.scratch.cwd, "stdin": subprocess.DEVNULL}
            options |= {"stdout": said, "stderr": said, "preexec_fn": die_with_parent}
            with running([path, *command[1:]], **options) as process:
                return self._waited(process, raw / "stop", patience_s)

    def _waited(self, process: subprocess.Popen[Any], stop: Path, patience_s: float) -> tuple[Status, str]:
        until = monotonic() + patience_s
        while monotonic() < until and not self._cancelled.is_set():
            try:
                status = process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                if stop.exists():
                    return "done", ""
                continue
            return ("done", "") if status == 0 or stop.exists() else _failed(status, self.folder / "output")
        return "too slow", f"it was ended after {patience_s:.0f} s"


def _plan(setting: Applied, warm: int, steps: Steps, step_on: str, sites: tuple[str, ...]) -> Plan:
    return Plan(
        depth="surface",
        settle=0,
        step_on=step_on,
        stop_after=None if steps.until is not None else warm + steps.counted,
        count_after=1_000_000,
        acts=setting.acts,
        witness=steps.compared,
        until=steps.until,
        sites=sites,
    )


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _failed(status: int, output: Path) -> tuple[Status, str]:
    text = output.read_text(errors="replace")[-LAST:]
    message = raised(text)
    memory = status == -signal.SIGKILL or any(word in message.lower() for word in _MEMORY)
    how: Status = "out of memory" if memory else "crashed"
    return how, f"it ended with status {status}: {message[:MESSAGE]}"


def _ahead(setting: Applied) -> int:
    """Return the batches that the loaders' workers make ahead, which say nothing about their speed."""
    loader = setting.acts.get("loader") or {}
    return int(loader.get("num_workers", 0)) * int(loader.get("prefetch_factor", 2))


def _settled(times: StepTimes, warm: int) -> int:
    """Return the first step that is timed: after `warm` steps, and after the compiler ran for the last time.

    A program that goes on compiling in the second half of its timed steps pays for that.
    """
    steps = len(times.began) - 1
    first = warm if steps >= warm + LEAST_STEPS else len(times.began) // 3
    after = int(np.searchsorted(times.began, max(times.compiled, default=0), "right"))
    return max(first, after) if after <= steps - max(LEAST_STEPS, (steps - first) // 2) else first


def _read(recording: Path, warm: int, watched: bool) -> Run:
    times = step_times(recording)
    arrays: dict[str, np.ndarray] = {}
    reached = None
    for file in sorted((recording / "raw").glob("witness-*.json")):
        content = json.loads(file.read_bytes())
        arrays |= {name: np.asarray(values) for name, values in content["arrays"].items()}
        if content["reached_ns"] and times.began:
            reached = float(content["reached_ns"] - times.began[0])
    ns = np.diff(times.began)[_settled(times, warm) :]
    samples = (
        [float(chunk.mean()) for chunk in np.array_split(ns, min(CHUNKS, len(ns))) if len(chunk)]
        if len(ns)
        else []
    )
    if times.notes:
        return Run("not applied", 0.0, why=times.notes[0])
    return Run("done", 0.0, samples, arrays, reached if watched else None)


def _read_switched(recording: Path) -> tuple[Run, Run]:
    """Return the blocks without and with the settings that the process with the most steps timed.

    Groups of blocks in which the compiler ran are left out.
    """
    notes = step_times(recording).notes
    files = (json.loads(file.read_bytes()) for file in (recording / "raw").glob("switched-*.json"))
    every: list[tuple[bool, float | None]] = max(files, key=len, default=[])
    groups = [every[first : first + len(ORDER)] for first in range(0, len(every), len(ORDER))]
    blocks = [block for group in groups if all(ns for _, ns in group) for block in group]
    if every and len(blocks) < 2 * len(ORDER):  # one group has no scatter
        notes.append("the compiler ran in most groups of steps")
    if notes:
        run = Run("not applied", 0.0, why=notes[0])
        return run, run
    without, under = ([ns for on, ns in blocks if ns and on is side] for side in (False, True))
    return Run("done", 0.0, without), Run("done", 0.0, under)


def _judged(read: Run, ended: tuple[Status, str], seconds: float) -> Run:
    status, why = ended
    if status != "done":
        return Run(status, seconds, why=why)
    if read.status == "done" and not read.samples:
        return Run("no steps", seconds, why="the program ran no steps that Fathom can see")
    return replace(read, seconds=seconds)


def merged(settings: Sequence[Applied]) -> Applied:
    """Return all settings together; acts with options are joined."""
    environment: dict[str, str] = {}
    acts: dict[str, Any] = {}
    arguments: dict[str, str] = {}
    for setting in settings:
        environment |= setting.environment
        arguments |= setting.arguments
        for name, value in setting.acts.items():
            both = isinstance(value, dict) and isinstance(acts.get(name), dict)
            acts[name] = {**acts[name], **value} if both else value
    return Applied(environment=environment, acts=acts, arguments=arguments)


def require_steps(run: Run) -> None:
    """Raise BadInputError unless the program as it is ran steps."""
    if run.status != "done":
        raise BadInputError(f"The program cannot be tuned: {run.why}; try it with `fathom run` first.")
