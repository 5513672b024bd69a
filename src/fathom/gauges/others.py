"""Whether something else uses a GPU that is to be measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from fathom.errors import FathomError
from fathom.machine.nvml import NvmlMissingError, load, reading

SHARED = "another process used the GPU meanwhile"


class BusyGpuError(FathomError):
    """Another process uses a GPU, so nothing measured on it would be a ceiling."""


def processes(device: int, open_nvml: Callable[[], Any] = load) -> list[int]:
    """Ids of other processes that compute on the GPU of this number; [] where the driver does not tell."""
    try:
        nvml = open_nvml()
    except NvmlMissingError:
        return []
    handle = reading(nvml.nvmlDeviceGetHandleByIndex, device)
    found = reading(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return sorted({int(process.pid) for process in found} - {os.getpid()})


def refuse_busy(devices: Iterable[int], open_nvml: Callable[[], Any] = load) -> None:
    """Raises BusyGpuError where another process uses one of the devices."""
    for device in devices:
        if found := processes(device, open_nvml):
            names = ", ".join(map(str, found))
            raise BusyGpuError(
                f"GPU {device} is in use by process {names}; end it, or measure beside it with --force."
            )
