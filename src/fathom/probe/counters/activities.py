"""Record the device's work during a burst, and the calls that launched it, with CUPTI directly.

Launches cost less than under Kineto. Records, and samples with them, carry the host's time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from fathom.pristine import open, time
from fathom.probe.counters import trace
from fathom.probe.counters.calls import runtime_calls, unwanted, waiting
from fathom.probe.counters.launches import CallReconstruction, RuntimeCall, WorkItem, is_sparse
from fathom.probe.counters.records import KINDS, KNOWN, RUNTIME, kind_of, name_of
from fathom.probe.counters.subscription import Subscription
from fathom.probe.device import device_in_use
from fathom.probe.inherited import TEARDOWN, value_of

BUFFER_BYTES, SPARE_BUFFERS = 2 << 20, 4  # a kernel takes about 220 bytes; each launching thread has a buffer
ZEROED = 5  # CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER: else launches wait while CUPTI zeroes a buffer
NEAR_NS = 1_000_000  # largest offset between CUPTI's clock and the host's
MAPS = "/proc/self/maps"
PATIENCE_S = {"1": 1.0, None: 0.2}  # by the value of TEARDOWN: newer versions of Kineto do not need it
POLL_S = 0.02
FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
FIRST = "spin_kernel"  # the kernel that `launch` launches
SYSTEM_IDS = 1  # CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM: the operating system's thread ids
CLOCK_PAIRS = 5
# Recorded in addition to the device's work: nothing; runtime calls; or calls that wait, and the times at
# which kernels were queued.
WORK, CALLS, QUEUED = "work", "calls", "queued"

Requested = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
Completed = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


class CuptiError(Exception):
    """A call of CUPTI failed; the message names it and its status."""


class Activities:
    """One burst at a time: `ready`, `enable`, `disable`, `save`, `detach`, of this process's libcupti."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._callbacks = Requested(self._give), Completed(self._take)  # CUPTI keeps them for its lifetime
        self._subscription = Subscription(library)
        self._spare: list[Any] = []
        self._given: dict[int, Any] = {}
        self._full: list[tuple[Any, int]] = []
        self._launches = CallReconstruction()
        self._waits: list[RuntimeCall] = []
        self._dense = False  # launches are so frequent that recording their calls costs too much
        self._watched = WORK
        self.rehearsal = False  # the last burst only taught `_launches` the timing of calls
        self.clock: tuple[int, int] | None = None  # CUPTI's clock minus the host's, and its error, in ns
        self.enabled = self._refused = self._launched = False

    def ready(self, touch: Callable[[], None]) -> bool:
        """Return whether nobody else uses CUPTI, and its clock follows the host's."""
        if self.free(touch):
            self._spare = [_buffer() for _ in range(SPARE_BUFFERS)]
            self._refused = not self._follows_host()
        return not self._refused

    def free(self, touch: Callable[[], None]) -> bool:
        """Wait until nobody else uses CUPTI; return whether it became free. After a timeout, never ask again.

        Kineto changes CUPTI's clock. It keeps CUPTI, or releases it at the first CUDA call after a burst. The
        release ends every recording begun before it; `touch` makes that call.
        """
        until = time.monotonic() + PATIENCE_S.get(value_of(TEARDOWN), 0.0)
        while not self._refused and not self._subscription.possible():
            self._refused = time.monotonic() >= until
            touch()
            time.sleep(POLL_S)
        return not self._refused

    def _follows_host(self) -> bool:
        """Return whether CUPTI's clock is the host's; it can be read only while activities are enabled."""
        try:
            self._switch_on()
            try:
                self.clock = self._offset()
            finally:
                self.disable()
        except CuptiError:
            return False
        self._full = []
        return abs(self.clock[0]) < NEAR_NS

    def _offset(self) -> tuple[int, int]:
        """Return CUPTI's clock minus the host's, and its error, in ns."""
        tries = []
        for _ in range(CLOCK_PAIRS):
            now, before = ctypes.c_uint64(), time.time_ns()
            self._ask("cuptiGetTimestamp", ctypes.byref(now))
            after = time.time_ns()
            tries.append((after - before, now.value - (before + after) // 2))
        width, offset = min(tries)
        return offset, width // 2

    def enable(self, first: Callable[[], bool] = lambda: False, calls: bool = False) -> None:
        """Start recording the device's work, and with `calls` also the launching calls. Raises CuptiError.

        The first launch afterwards costs a third of a millisecond. `first` makes it, like `launch`, and
        returns whether it did; that launch is not written.
        """
        self._switch_on(WORK if not calls else QUEUED if self._dense and self._launches.known else CALLS)
        self._launched = first()

    def _switch_on(self, watched: str = WORK) -> None:
        self._ask("cuptiActivityRegisterCallbacks", *self._callbacks)
        self._zeroed(1)
        self.enabled, self._watched = True, watched
        try:
            for kind in KINDS:
                self._ask("cuptiActivityEnable", kind)
            if watched != WORK:
                self._watch_host(watched)
        except CuptiError:
            self._zeroed(0)
            raise

    def _watch_host(self, watched: str) -> None:
        self._ask("cuptiActivityEnableLatencyTimestamps", ctypes.c_uint8(1))
        if watched == QUEUED:
            self._subscription.watch(waiting(runtime_calls(self._library)))
            return
        self._ask("cuptiSetThreadIdType", SYSTEM_IDS)
        self._ask("cuptiActivityEnable", RUNTIME)
        for number in unwanted(runtime_calls(self._library).items()):
            self._library.cuptiActivityEnableRuntimeApi(number, ctypes.c_uint8(0))

    def disable(self) -> None:
        """Stop recording; the device must be idle. Raises CuptiError."""
        self.enabled = False
        try:
            if self._watched != WORK:
                self.clock = self._offset()
                self._waits = self._subscription.calls(self.clock[0])
            for kind in (*KINDS, RUNTIME) if self._watched == CALLS else KINDS:
                self._ask("cuptiActivityDisable", kind)
            if self._watched != WORK:
                self._ask("cuptiActivityEnableLatencyTimestamps", ctypes.c_uint8(0))
            self._ask("cuptiActivityFlushAll", FORCED)
        finally:
            self._zeroed(0)  # as Kineto expects

    def save(self, path: str, thread: int = 0) -> int:
        """Write the burst in Kineto's format, free its memory, and return the number of events.

        `thread` is the thread of calls recorded without one. A `rehearsal` is not written, because recording
        every call made the steps of a program with many launches longer.
        """
        work, calls = trace.work_of(self._records()), self._calls()
        skip = self._first_of(work) if self._launched else -1
        if self._watched != WORK:
            calls += self._completed(work, calls, thread)
        if self.rehearsal:
            count = len(work) + len(calls)
        else:
            count = trace.write(path, self._records, work, sorted(calls), thread, skip)
        self.drop()
        return count

    def _calls(self) -> list[RuntimeCall]:
        if self._watched != CALLS:
            return list(self._waits)
        return trace.calls_of(self._records(), runtime_calls(self._library))

    def _completed(self, work: list[WorkItem], calls: list[RuntimeCall], thread: int) -> list[RuntimeCall]:
        """Return the calls that were not recorded, and decide how later bursts record them."""
        if self._watched == CALLS:
            self._launches.learn(work, calls)
        self._dense = not is_sparse(work)
        self.rehearsal = self._watched == CALLS and self._dense and self._launches.known
        return self._launches.missing(work, calls, thread)

    @staticmethod
    def _first_of(work: list[WorkItem]) -> int:
        """Return the correlation of the launch that `first` made; -1 if it is missing."""
        ours = (item.correlation for item in work if item.kind == "kernel" and FIRST in name_of(item.name))
        return min(ours, default=-1)

    def drop(self) -> None:
        """Discard the burst."""
        self._full, self._spare, self._waits = [], [], []

    def detach(self, touch: Callable[[], None]) -> bool:
        """Remove CUPTI from the process after a burst was saved or dropped; return whether that worked.

        Until then all launches are slower. `touch` calls CUDA's runtime. As in Kineto, TEARDOWN_CUPTI=0 in
        the environment keeps CUPTI attached.
        """
        return value_of(TEARDOWN) != "0" and self._subscription.detach(touch)

    def _records(self) -> Iterator[tuple[int, int]]:
        """Yield kind and address of every record."""
        for buffer, size in self._full:
            record = ctypes.c_void_p()
            start = ctypes.addressof(buffer)
            while size and self._next(start, size, record):
                kind = kind_of(record.value or 0)
                if kind in KNOWN:
                    yield kind, record.value or 0

    def _next(self, start: int, size: int, record: ctypes.c_void_p) -> bool:
        next_record = self._library.cuptiActivityGetNextRecord
        return bool(next_record(ctypes.c_void_p(start), ctypes.c_size_t(size), ctypes.byref(record)) == 0)

    def _zeroed(self, value: int) -> None:
        """Tell CUPTI whether our buffers are already zeroed (1) or not (0)."""
        size, is_zeroed = ctypes.c_size_t(1), ctypes.c_uint8(value)
        self._ask("cuptiActivitySetAttribute", ZEROED, ctypes.byref(size), ctypes.byref(is_zeroed))

    def _give(self, buffer: Any, size: Any, most: Any) -> None:
        ours = self._spare.pop() if self._spare else _buffer()
        address = ctypes.addressof(ours)
        self._given[address] = ours
        buffer[0], size[0], most[0] = address, BUFFER_BYTES, 0

    def _take(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        self._full.append((self._given.pop(buffer), valid))

    def _ask(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CuptiError(f"{name} failed with status {code}")


def launch(cuda: Any) -> bool:
    """Launch a short kernel that the program does not notice; return whether it was launched.

    The kernel needs no memory, and torch's dispatch modes do not see it.
    """
    if not cuda.is_initialized():
        return False
    try:
        with cuda.device(device_in_use(cuda)):
            cuda._sleep(1)
    except RuntimeError:  # the program failed
        return False
    return True


def activities(maps: str = MAPS) -> Activities | None:
    """Return the Activities of the libcupti that this process loaded; None if there is none, or not CUPTI 13.

    Also None if there is no driver, because every call of libcupti 13.2 then recurses until the program dies.
    """
    path = loaded(maps) if _mapped("/libcuda.so", maps) else None
    return None if path is None else _of(path)


@lru_cache(maxsize=1)  # the library keeps the first callbacks for its lifetime
def _of(path: str) -> Activities | None:
    library, version = ctypes.CDLL(path), ctypes.c_uint32()
    known = library.cuptiGetVersion(ctypes.byref(version)) == 0 and version.value // 10_000 == 13
    return Activities(library) if known else None


def loaded(maps: str = MAPS) -> str | None:
    """Return the path of the libcupti that this process has loaded; None if there is none, or several."""
    paths = _mapped("/libcupti.so", maps)
    return paths.pop() if len(paths) == 1 else None


def _mapped(name: str, maps: str) -> set[str]:
    """Return the paths of mapped libraries whose path contains `name`; empty if `maps` cannot be read."""
    try:
        with open(maps) as file:
            return {line.split(maxsplit=5)[5].strip() for line in file if name in line}
    except OSError:
        return set()


def _buffer() -> Any:
    return ctypes.create_string_buffer(BUFFER_BYTES)
