"""Drive Kineto through torch's bindings, without creating a Python object per event."""

from __future__ import annotations

import ctypes
import json
import os
import time
from typing import Any

from fathom.probe.device import device_in_use
from fathom.probe.lines import call_lines
from fathom.probe.quiet import quiet
from fathom.probe.uncollected import uncollected
from fathom.probe.whole import whole

MARK = "fathom.mark#"
BYTES_AN_EVENT = 300  # of Kineto's JSON, without shapes or stacks
EVERYWHERE = "profile_all_threads"  # before torch had this, a burst covered only its own thread


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
        self.annotation = profiler.record_function  # the fast one would record regions as ops
        self._mark = getattr(torch._C._profiler, "_RecordFunctionFast", None) or self.annotation
        self._config: Any = None
        self._activities: set[Any] = set()
        self._result: Any = None
        self._tell_compiled_code = self._stacks = False
        self.enabled = False
        self.any_thread = _knows(torch._C._profiler._ExperimentalConfig, EVERYWHERE)  # may end such a burst

    def foreign(self) -> bool:
        """Whether the program itself is profiling now."""
        return not self.enabled and bool(self._enabled())

    def prepare(
        self, shapes: bool = False, stacks: bool = False, everywhere: bool = False, device_only: bool = False
    ) -> None:
        """Set up the tracer without recording. On a GPU the first call may take a second."""
        bindings = self._torch._C._profiler
        options = _supported(bindings._ExperimentalConfig, **{EVERYWHERE: everywhere}, trace_only=not stacks)
        self._activities = _activities(self._torch, device_only)
        self._config = bindings.ProfilerConfig(
            bindings.ProfilerState.KINETO, shapes, False, stacks, False, False, options
        )
        self._tell_compiled_code, self._stacks = shapes, stacks
        with quiet():
            self._prepare(self._config, self._activities)

    def enable(self) -> None:
        """Start recording."""
        if self._tell_compiled_code:  # compiled code then reports the ops behind its kernels
            self._profiler._run_on_profiler_start()
        with quiet():
            self._enable(self._config, self._activities)
        self.enabled = True

    def mark(self, k: int) -> int:
        """Annotate the opening of step k on this thread; return the host's time of it."""
        with self._mark(f"{MARK}{k}"):
            return time.time_ns()

    def disable(self) -> None:
        """Stop recording, after waiting for the device to finish the recorded work."""
        cuda = self._torch.cuda
        if cuda.is_initialized():
            cuda.synchronize(device_in_use(cuda))
        with quiet():
            self._result = self._disable()
        self.enabled = False
        if self._tell_compiled_code:
            self._profiler._run_on_profiler_stop()

    def save(self, path: str) -> int:
        """Write Kineto's JSON to `path`, free its memory, and return the approximate number of events."""
        with whole(path) as part:
            self._result.save(part)
        if self._stacks:
            self._save_lines(path)
        self.drop()
        return os.path.getsize(path) // BYTES_AN_EVENT

    def _save_lines(self, path: str) -> None:
        """Write the lines of the program's calls beside the trace."""
        folder, name = os.path.split(path)
        with uncollected():
            text = json.dumps(call_lines(self._result))
        with whole(os.path.join(folder, f"lines-{name}")) as part, open(part, "w", encoding="utf-8") as file:
            file.write(text)

    def drop(self) -> None:
        """Discard the burst and return its memory to the system."""
        self._result = None
        _trim()


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


def _activities(torch: Any, device_only: bool = False) -> set[Any]:
    activity = torch._C._profiler.ProfilerActivity
    supported = torch.autograd._supported_activities()
    wanted = {activity.CPU}
    if torch.cuda.is_available() and activity.CUDA in supported:
        wanted = {activity.CUDA} if device_only else {activity.CPU, activity.CUDA}
    return wanted


def _trim() -> None:
    """Return freed heap pages to the system if the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
