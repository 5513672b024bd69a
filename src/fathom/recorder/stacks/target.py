"""One sampled process: the state of its thread, its stacks, and the output file of its samples."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from fathom.atomic import private
from fathom.probe.frames import DENSE, LAYOUT, SPARSE, FrameLayout, ProcessMemory
from fathom.recorder.stacks.codes import Chain, Codes, Frame, TornError, Walker


def _numbered(calls: str) -> dict[int, str]:
    return {int(number): name for number, name in (call.split() for call in calls.split(","))}


# System calls that may block.
_X86_64 = _numbered("""
    0 read, 1 write, 2 open, 3 close, 4 stat, 5 fstat, 6 lstat, 7 poll, 8 lseek, 9 mmap, 11 munmap,
    16 ioctl, 17 pread64, 18 pwrite64, 19 readv, 20 writev, 23 select, 24 sched_yield, 28 madvise, 34 pause,
    35 nanosleep, 40 sendfile, 42 connect, 43 accept, 44 sendto, 45 recvfrom, 46 sendmsg, 47 recvmsg,
    61 wait4, 65 semop, 72 fcntl, 73 flock, 74 fsync, 75 fdatasync, 82 rename, 87 unlink,
    128 rt_sigtimedwait, 202 futex, 208 io_getevents, 217 getdents64, 220 semtimedop, 230 clock_nanosleep,
    232 epoll_wait, 242 mq_timedsend, 243 mq_timedreceive, 247 waitid, 257 openat, 262 newfstatat,
    270 pselect6, 271 ppoll, 281 epoll_pwait, 285 fallocate, 288 accept4, 295 preadv, 296 pwritev,
    299 recvmmsg, 307 sendmmsg, 332 statx, 426 io_uring_enter, 441 epoll_pwait2, 449 futex_waitv
""")
_AARCH64 = _numbered("""
    22 epoll_pwait, 25 fcntl, 29 ioctl, 32 flock, 35 unlinkat, 47 fallocate, 56 openat, 57 close,
    61 getdents64, 62 lseek, 63 read, 64 write, 65 readv, 66 writev, 67 pread64, 68 pwrite64, 69 preadv,
    70 pwritev, 71 sendfile, 72 pselect6, 73 ppoll, 79 newfstatat, 80 fstat, 82 fsync, 83 fdatasync,
    95 waitid, 98 futex, 101 nanosleep, 115 clock_nanosleep, 124 sched_yield, 137 rt_sigtimedwait,
    182 mq_timedsend, 183 mq_timedreceive, 192 semtimedop, 193 semop, 202 accept, 203 connect, 206 sendto,
    207 recvfrom, 211 sendmsg, 212 recvmsg, 215 munmap, 222 mmap, 233 madvise, 242 accept4, 243 recvmmsg,
    260 wait4, 269 sendmmsg, 276 renameat2, 291 statx, 426 io_uring_enter, 441 epoll_pwait2,
    449 futex_waitv
""")
CALLS = {"x86_64": _X86_64, "AMD64": _X86_64, "aarch64": _AARCH64, "arm64": _AARCH64}
RUNNING = ("R", "W")  # states of a thread that is running or ready to run
PROCESSOR = 36  # field of /proc/PID/stat after the name: the processor that the thread ran on last
_LIBC = ctypes.CDLL(None)

State = tuple[bool | None, str | None]


class Activity:
    """Reads the state of one thread. Methods return None if the system does not report a value."""

    def __init__(self, pid: int, thread: int, root: str = "/proc") -> None:
        folder = f"{root}/{pid}/task/{thread}"
        self._names = CALLS.get(platform.machine(), {})
        self._call = _open(f"{folder}/syscall")
        self._stat = _open(f"{folder}/stat")
        self._scheduler = _open(f"{folder}/schedstat")
        self._ran, self._waited = self._schedule() or (0, 0)

    def now(self) -> State:
        """Return (whether the thread is running or ready, the system call that blocks it or None)."""
        try:
            if self._call is not None:
                return self._by_call(os.pread(self._call, 16, 0))
            if self._stat is not None:
                return os.pread(self._stat, 512, 0).rpartition(b") ")[2][:1].decode() in RUNNING, None
        except OSError:
            pass
        return None, None

    def on_processor(self) -> float | None:
        """Return the time that the thread ran since the last call, as a share of the time it was runnable."""
        now = self._schedule()
        if now is None:
            return None
        ran, waited = now[0] - self._ran, now[1] - self._waited
        self._ran, self._waited = now
        return round(ran / (ran + waited), 3) if ran + waited > 0 else None

    def displaced(self) -> bool:
        """Return whether the thread last ran on the core that we are using now, so that it cannot run."""
        if self._stat is None:
            return False
        try:
            fields = os.pread(self._stat, 1024, 0).rpartition(b") ")[2].split()
            return int(fields[PROCESSOR]) == _LIBC.sched_getcpu()
        except (OSError, ValueError, IndexError, AttributeError):
            return False

    def _schedule(self) -> tuple[int, int] | None:
        """Return the nanoseconds that the thread ran, and the nanoseconds that it waited for a core."""
        if self._scheduler is None:
            return None
        try:
            ran, waited, _ = map(int, os.pread(self._scheduler, 64, 0).split())
        except (OSError, ValueError):
            return None
        return ran, waited

    def _by_call(self, text: bytes) -> State:
        number = text.split(b" ", 1)[0].strip()
        if not number.isdigit():  # "running", or -1: blocked outside a system call, as in a page fault
            return number == b"running", "page fault" if number == b"-1" else None
        return False, self._names.get(int(number), f"system call {int(number)}")

    def close(self) -> None:
        for file in (self._call, self._stat, self._scheduler):
            if file is not None:
                os.close(file)
        self._call = self._stat = self._scheduler = None


def _open(path: str) -> int | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        os.pread(file, 16, 0)
    except OSError:
        os.close(file)
        return None
    return file


# Calls in which an event loop waits for events, and in which any thread waits for another.
WAITING = ("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6", "futex", None)
BATCH, SPARSE_BATCH = 4096, 64  # samples per write; those of a burst are written when it has ended
TRIES = 4  # walks per sample, if they are torn
AGAIN = 2  # read the stack twice in one of this many samples
GLANCES = (
    8  # more readings of a frame that looks the same: a busy loop of few instructions may be back at one
)
MOST_KNOWN = 50_000  # chains to remember

# Whether the interpreter moved on between two reads, ns between them, and the share of its runnable time
# since the previous check in which the thread had a core.
Moves = tuple[()] | tuple[bool, int, float | None]


class SampledProcess:
    """Samples one thread of the process `pid` into `raw/stacks-PID.jsonl`."""

    def __init__(self, raw: Path, pid: int) -> None:
        location = json.loads((raw / LAYOUT.format(pid=pid)).read_text())
        layout, memory = FrameLayout(**location["layout"]), ProcessMemory(pid)
        self.pid = pid
        self.on, self.rate = False, DENSE
        self.sparse = 0  # samples of clean steps so far
        self._path = raw / f"stacks-{pid}.jsonl"
        self._walker, self._codes = Walker(memory, layout), Codes(memory, layout)
        self._activity: Activity | None = None
        self._state = self._thread = self._torn = self._start_ns = self.samples = 0
        self._chains: dict[Chain, int | None] = {}  # stack number by chain; None for a torn chain
        self._places: dict[tuple[int, int], int] = {}  # frame number by (code, instruction)
        self._frames: dict[Frame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._rows: list[tuple[int, bool | None, str | None, Chain, Moves]] = []
        self._of_main: list[tuple[int, bool | None, str | None, Chain]] = []
        self._main: tuple[Activity, int] | None = None
        self._new: dict[str, list[Any]] = {"frames": [], "stacks": []}

    def begin(
        self, thread: int, state: int, rate: str | None = DENSE, main: tuple[int, int] | None = None
    ) -> None:
        """Begin a stretch of DENSE or SPARSE samples of `thread`, whose state is at address `state`.

        `main` is the main thread and its state, if the thread may wait for it.
        """
        self.end()
        self._forget()
        self.on, self._thread, self._state, self.rate = True, thread, state, rate or DENSE
        self._torn = self.samples = 0
        self._start_ns = time.time_ns()
        self._activity = Activity(self.pid, thread)
        self._main = (Activity(self.pid, main[0]), main[1]) if main and all(main) else None

    def end(self) -> None:
        """End the stretch and write pending samples."""
        if not self.on:
            return
        self.on = False
        for activity in (self._activity, self._main and self._main[0]):
            if activity is not None:
                activity.close()
        self._write()
        times = {"start_ns": self._start_ns, "end_ns": time.time_ns()}
        counts = {"rate": self.rate, "samples": self.samples, "dropped": self._torn}
        self._append([{"t": "stretch", **times, **counts}])

    def sample(self) -> None:
        """Take one sample. Drop it if its walks are torn; end the stretch if the process has ended."""
        assert self._activity is not None
        now = time.time_ns()
        running, call = self._activity.now()
        began, chain = self._walk()
        self.samples += 1
        if chain is None:
            self._torn += 1
            if self._walker.gone(self._state):
                self.end()
            return
        moves = self._moves(chain, began) if running and self.samples % AGAIN == 0 else ()
        self._rows.append((now, running, call, chain, moves))
        if running is False and self._main is not None:
            self._sample_main(now, *self._main)
        if self.rate == SPARSE:
            self.sparse += 1
            for *_, pending in self._of_main[-1:]:
                self._stack(pending)  # resolve now, because the process may end within the stretch
            if len(self._rows) >= SPARSE_BATCH:
                self._write()
                self._forget()
        elif len(self._rows) >= BATCH:
            self._write()

    def _walk(self) -> tuple[int, Chain | None]:
        """Return when the walk that is not torn began, and its chain; None if all are torn.

        Only running threads tear walks, so dropped samples would make blocked time look longer.
        """
        for _ in range(TRIES):
            began, chain = time.perf_counter_ns(), self._walker.walk(self._state)
            if chain is not None and (self.rate != SPARSE or self._stack(chain) is not None):
                return began, chain
        return began, None

    def _sample_main(self, now: int, activity: Activity, state: int) -> None:
        """Note where the main thread is, unless it waits as well."""
        running, call = activity.now()
        if running or call not in WAITING:
            chain = self._walker.walk(state)
            if chain is not None:
                self._of_main.append((now, running, call, chain))

    def _forget(self) -> None:
        """Forget resolved addresses, because the program reuses them."""
        self._chains.clear()
        self._places.clear()

    def _moves(self, chain: Chain, began: int) -> Moves:
        """Read the stack again, to see whether the interpreter moved on or is inside a native call.

        The frame's values are compared too, because a loop may be back at the same instruction. Returns () if
        the sampler itself took the thread's core, because then neither can be seen.
        """
        frame, again = self._walker.innermost, time.perf_counter_ns()
        after = self._walker.walk(self._state)
        moved = after != chain or frame != self._walker.innermost
        glances = 0
        while not moved and glances < GLANCES:
            again, glances = time.perf_counter_ns(), glances + 1
            moved = self._walker.glance(self._state)[: len(frame)] not in (frame, b"")
        share = self._activity.on_processor() if self._activity else None
        displaced = self._activity is not None and self._activity.displaced()
        return () if after is None or displaced else (moved, again - began, share)

    def _stack(self, chain: Chain) -> int | None:
        """Return the number of a chain's stack; None if it was torn."""
        if chain not in self._chains:
            if len(self._chains) >= MOST_KNOWN:
                self._chains.clear()
            self._chains[chain] = self._resolved(chain)
        return self._chains[chain]

    def _resolved(self, chain: Chain) -> int | None:
        try:
            frames = [self._frame(chain[i], chain[i + 1]) for i in range(0, len(chain), 2)]
        except (TornError, OSError, UnicodeDecodeError):
            return None
        stack = tuple(frame for frame in reversed(frames) if frame >= 0)
        number = self._stacks.get(stack)
        if number is None:
            number = self._stacks[stack] = len(self._stacks)
            self._new["stacks"].append(stack)
        return number

    def _frame(self, code: int, instruction: int) -> int:
        """Return the number of a frame; -1 for the interpreter's own code."""
        place = code, instruction
        if place not in self._places:
            frame = self._codes.frame(code, instruction)
            if frame is not None and frame not in self._frames:
                self._frames[frame] = len(self._frames)
                self._new["frames"].append(frame)
            self._places[place] = -1 if frame is None else self._frames[frame]
        return self._places[place]

    def _write(self) -> None:
        """Resolve and write pending samples. Rare within a stretch, because it takes milliseconds."""
        resolved = [
            (now, running, call, self._stack(chain), *moves)
            for now, running, call, chain, moves in self._rows
        ]
        rows = [row for row in resolved if row[3] is not None]
        self._torn += len(resolved) - len(rows)
        main = [(now, running, call, self._stack(chain)) for now, running, call, chain in self._of_main]
        of_main = [row for row in main if row[3] is not None]
        new: list[dict[str, object]] = [{"t": name, "rows": rows} for name, rows in self._new.items() if rows]
        if rows:
            new.append({"t": "samples", "thread": self._thread, "rows": rows})
        if of_main:
            new.append({"t": "main", "rows": of_main})
        self._rows, self._of_main, self._new = [], [], {"frames": [], "stacks": []}
        self._append(new)

    def _append(self, records: list[dict[str, object]]) -> None:
        if records:
            with open(self._path, "a", opener=private) as file:
                file.write("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
