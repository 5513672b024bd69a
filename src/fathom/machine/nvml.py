"""NVML, the driver's management library. Any reading may be missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fathom.machine.files import NotOfferedError, UnreadableError

_ABSENT = ("NVMLError_NotSupported", "NVMLError_FunctionNotFound", "AttributeError")
# NVML's clock event reasons (nvmlClocksEventReasons*), by bit.
REASONS = {
    0x2: "applications clocks setting",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}


class NvmlMissingError(Exception):
    """NVML cannot be used here; the message is the reason in one clause."""


def load() -> Any:
    """Return the initialised `pynvml` module. Raises NvmlMissingError if it or the driver is missing."""
    try:
        import pynvml
    except ImportError:
        raise NvmlMissingError("the Python package nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NvmlMissingError(f"the NVIDIA driver's management library did not open ({error})") from None
    return pynvml


def ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """Return the result of NVML's `function`. Raises NotOfferedError if it is missing, or UnreadableError."""
    try:
        value = getattr(nvml, function)(*arguments)
    except Exception as error:
        if type(error).__name__ in _ABSENT:
            raise NotOfferedError(f"this GPU or driver does not offer {function}") from error
        raise UnreadableError(f"{function} failed ({error})") from error
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def reading(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of `call`, or None if it fails or the device or driver does not support it."""
    try:
        value = call(*arguments)
    except Exception:  # NVMLError, or AttributeError from an older binding
        return None
    return value.decode() if isinstance(value, bytes) else value


class NvmlDevice:
    """One GPU queried through NVML; `refused` maps each failed query to its reason."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self.handle = handle
        self.refused: dict[str, str] = {}

    def ask(self, name: str, *more: Any) -> Any:
        """Return the result of `nvmlDeviceGet{name}`, or None with the reason in `refused`."""
        try:
            return ask(self.nvml, f"nvmlDeviceGet{name}", self.handle, *more)
        except (NotOfferedError, UnreadableError) as error:
            said = error.__cause__
            absent = isinstance(said, AttributeError)
            self.refused[name] = str(error) if absent else str(said).strip() or type(said).__name__
            return None

    def ask_quietly(self, name: str, *more: Any) -> Any:
        """Return the result of `nvmlDeviceGet{name}`, or None, without adding to `refused`."""
        return reading(ask, self.nvml, f"nvmlDeviceGet{name}", self.handle, *more)


def other_processes(nvml: Any, handles: Iterable[Any]) -> list[int]:
    """Return the ids of other compute processes on these devices, as far as the driver shows them."""
    running = [reading(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or [] for handle in handles]
    return sorted({int(process.pid) for listed in running for process in listed} - {os.getpid()})


def visible(nvml: Any, environment: Mapping[str, str] = os.environ) -> list[Any]:
    """Return the handles of the devices visible to a program with this environment, in its order.

    Follows CUDA_VISIBLE_DEVICES as CUDA does: indices or UUID prefixes, cut at the first invalid entry.
    """
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    every = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    if wanted is None:
        return every
    chosen: list[Any] = []
    for name in wanted.split(","):
        handle = _find(nvml, every, name.strip())
        if handle is None:
            break
        chosen.append(handle)
    return chosen


def _find(nvml: Any, every: list[Any], name: str) -> Any:
    if name.isdigit():
        return every[int(name)] if int(name) < len(every) else None
    if name.startswith("GPU-"):
        return next((h for h in every if (reading(nvml.nvmlDeviceGetUUID, h) or "").startswith(name)), None)
    if name.startswith("MIG-"):
        slice_ = reading(nvml.nvmlDeviceGetHandleByUUID, name)
        # Sensors such as power exist only for the parent device, not for a slice.
        return slice_ and reading(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, slice_)
    return None
