"""Drive Kineto through torch's bindings, without creating a Python object per event."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fathom.atomic import atomic_write
from fathom.pristine import json, open, os, time
from fathom.probe.collecting import uncollected
from fathom.probe.device import device_in_use
from fathom.probe.faults import get_profile, set_profile, suspended
from fathom.probe.inherited import TEARDOWN, value_of
from fathom.probe.threads import get_ident

MARK = "fathom.mark#"
BYTES_PER_EVENT = 300  # of Kineto's JSON, without shapes or stacks
EVERYWHERE = "profile_all_threads"  # without this option, a burst covers only its own thread
# The log lines of Kineto and of torch's profiler, in all versions.
NOISE = re.compile(
    rb"USDT:|ERROR: External init callback must run in same thread|(STAGE|VERBOSE|INFO|WARNING|ERROR):\d{4}-"
    rb"|(\[rank\d+\]:)?\[[VIWEF]\d{3,4} [^\]]*(kineto|profiler|Profiler|Cupti|cupti|CPUAllocator)"
)
MOST_SECONDS = 3.0  # to read lines: with more calls than that allows, no lines are written
LIBRARIES = ("torch/", "torchgen/", "functorch/", "triton/", "fathom/", "<")

CallLine = tuple[int, str, str, int]  # nanoseconds, file, function, line


class Kineto:
    """One burst at a time: `prepare`, `enable`, marks, `disable`, `save`. Requires torch to be imported.

    `everywhere` records the operators of all threads, not only of this one and autograd's.
    """

    def __init__(self) -> None:
        import torch
        from torch.autograd import profiler

        # The original functions: the module's globals may be patched to detect the program's own profiler.
        native = torch._C._autograd
        self._prepare, self._enable = native._prepare_profiler, native._enable_profiler
        self._disable, self._enabled = native._disable_profiler, native._profiler_enabled
        self._torch, self._profiler = torch, profiler
        self.annotation = profiler.record_function  # _RecordFunctionFast would record regions as ops
        self._mark = getattr(torch._C._profiler, "_RecordFunctionFast", None) or self.annotation
        self._config: Any = None
        self._activities: set[Any] = set()
        self._result: Any = None
        self._with_provenance = self._stacks = self._memory = False
        self.enabled = False
        self._ours: Any = None  # the profile function with which Kineto records stacks
        self.any_thread = _knows(torch._C._profiler._ExperimentalConfig, EVERYWHERE)  # may end a burst

    def foreign(self) -> bool:
        """Return whether the program itself is profiling now."""
        return not self.enabled and bool(self._enabled())

    def prepare(
        self,
        shapes: bool = False,
        stacks: bool = False,
        everywhere: bool = False,
        device_only: bool = False,
        memory: bool = False,
    ) -> None:
        """Set up the tracer without recording. On a GPU the first call may take a second."""
        bindings = self._torch._C._profiler
        options = _supported(bindings._ExperimentalConfig, **{EVERYWHERE: everywhere}, trace_only=not stacks)
        self._activities = recorded_activities(self._torch, device_only)
        self._config = bindings.ProfilerConfig(
            bindings.ProfilerState.KINETO, shapes, memory, stacks, False, False, options
        )
        self._with_provenance, self._stacks, self._memory = shapes, stacks, memory
        with self._calling():
            self._prepare(self._config, self._activities)

    def enable(self) -> None:
        """Start recording."""
        if self._with_provenance:  # compiled code then reports the ops behind its kernels
            self._profiler._run_on_profiler_start()
        early = self._torch.UntypedStorage(64) if self._memory else None
        with self._calling():
            self._enable(self._config, self._activities)
            # torch warns of every thousandth free of a block from before: its first warning ends here.
            del early
        self.enabled = True
        self._ours = get_profile() if self._stacks else None

    def mark(self, k: int) -> int:
        """Annotate the opening of step k on this thread; return the host's time of the annotation in ns."""
        with self._mark(f"{MARK}{k}"):
            return time.time_ns()

    def disable(self) -> None:
        """Stop recording, after waiting for the device to finish the recorded work."""
        cuda = self._torch.cuda
        if cuda.is_initialized():
            cuda.synchronize(device_in_use(cuda))
        theirs = get_profile() if self._stacks else None
        with self._calling():
            self._result = self._disable()  # with stacks, this removes any profile function
        self.enabled = False
        if theirs is not None and theirs is not self._ours:  # set by the program during the burst
            getattr(theirs, "enable", lambda: set_profile(theirs))()
        if self._with_provenance:
            self._profiler._run_on_profiler_stop()

    def save(self, path: str) -> int:
        """Write Kineto's JSON to `path`, free its memory, and return the approximate number of events."""
        with self._calling(), atomic_write(path) as part:
            self._result.save(part)
        if self._stacks:
            self._save_lines(path)
        self.drop()
        return os.path.getsize(path) // BYTES_PER_EVENT

    def _save_lines(self, path: str) -> None:
        """Write the lines of the program's calls beside the trace."""
        folder, name = os.path.split(path)
        with uncollected():
            text = json.dumps(call_lines(self._result))
        with (
            atomic_write(os.path.join(folder, f"lines-{name}")) as part,
            open(part, "w", encoding="utf-8") as file,
        ):
            file.write(text)

    def drop(self) -> None:
        """Discard the burst and return its memory to the system."""
        with self._calling():
            self._result = None
        _trim()

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Call Kineto, without its lines, and so that it does not wait for calls of CUDA."""
        with quiet(), keeping_cupti(not self._torch.cuda.is_initialized()):
            yield


def profiles_itself() -> bool:
    """Return whether the program has a profile function, which Kineto's stacks would replace for good."""
    of_threads = getattr(sys.modules.get("threading"), "_profile_hook", None)
    return get_profile() is not None or get_ident() in suspended or of_threads is not None


def _supported(config: Any, **options: bool) -> Any:
    """Return the experimental options that this version of torch supports."""
    options = {name: value for name, value in options.items() if value}
    while True:
        try:
            return config(**options)
        except TypeError:
            if not options:
                raise
            del options[next(reversed(options))]


def _knows(config: Any, option: str) -> bool:
    try:
        config(**{option: True})
    except TypeError:
        return False
    return True


def recorded_activities(torch: Any, device_only: bool = False) -> set[Any]:
    """Return the activities to record: the device's only if the program uses it."""
    activity = torch._C._profiler.ProfilerActivity
    if not torch.cuda.is_initialized() or activity.CUDA not in torch.autograd._supported_activities():
        return {activity.CPU}
    return {activity.CUDA} if device_only else {activity.CPU, activity.CUDA}


@contextmanager
def keeping_cupti(needed: bool) -> Iterator[None]:
    """Keep Kineto from releasing CUPTI at the end of a burst if `needed`, unless the user sets the variable.

    Kineto releases CUPTI at the next call of CUDA, on a thread that waits for that call. A program that makes
    none would therefore never exit. Only C code sees the change of the variable.
    """
    if not needed or TEARDOWN in os.environ:
        yield
        return
    os.putenv(TEARDOWN, "0")
    try:
        yield
    finally:
        before = value_of(TEARDOWN)
        os.unsetenv(TEARDOWN) if before is None else os.putenv(TEARDOWN, before)


def _trim() -> None:
    """Return freed heap pages to the system if the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def quiet() -> Iterator[None]:
    """Drop Kineto's lines from stderr; other output written in the block is passed on at its end."""
    try:
        captured = os.memfd_create("fathom-stderr", os.MFD_CLOEXEC)
        kept = os.dup(2)
    except (AttributeError, OSError):
        yield
        return
    os.dup2(captured, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        try:
            os.close(kept)
        finally:
            _pass_on(captured)


def _pass_on(captured: int) -> None:
    try:
        with open(captured, "rb", closefd=False) as file:
            file.seek(0)
            for line in file:
                if not NOISE.match(line):
                    os.write(2, line)
    finally:
        os.close(captured)


def call_lines(result: Any) -> list[CallLine]:
    """Return the times at which the program's functions were entered or made calls, and their lines then.

    In the trace, a frame has only the first line of its function, or the current line if it was open when
    the profiler began. Each call also has its caller's line, the line that actually ran.

    Empty if this version of torch does not report lines, or if reading them takes too long.
    """
    rows: list[CallLine] = []
    known: dict[str, bool] = {}
    waiting = list(result.experimental_event_tree())
    until = time.monotonic() + MOST_SECONDS
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        fields = event.extra_fields
        caller = getattr(fields, "caller", None)
        if caller is None:
            continue
        here = getattr(fields, "callsite", None)
        for frame in (caller, here if hasattr(here, "line_number") else None):
            if frame is not None and (names := _names(frame)) and _is_program(names[0], known):
                rows.append((event.start_time_ns, *names, frame.line_number))
        if time.monotonic() > until:
            return []
    return sorted(rows)


def _names(frame: Any) -> tuple[str, str] | None:
    """Return the file and the function of a frame; None if torch points to code that has been freed."""
    try:
        names = frame.file_name, frame.function_name
    except UnicodeDecodeError:
        return None
    return names if all(map(str.isprintable, names)) else None


def _is_program(file: str, known: dict[str, bool]) -> bool:
    if file not in known:
        standard = "/lib/python3" in file and "-packages/" not in file
        known[file] = not (standard or file.startswith(LIBRARIES))
    return known[file]
