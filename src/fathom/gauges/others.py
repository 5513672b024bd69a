"""Whether something else uses a GPU that is to be measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from fathom.errors import FathomError
from fathom.machine.nvml import Device, NvmlMissingError, load, reading
from fathom.units import GIB

SHARED = "another process used the GPU meanwhile"
IDLE_BYTES = 2**31  # of an idle GPU's memory are in use at most, for the driver itself
IDLE_PERCENT = 10


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


def traces(device: int, open_nvml: Callable[[], Any] = load) -> list[str]:
    """Reasons to doubt that a GPU was idle before it was measured.

    A container does not see the processes of others, but the driver tells what they hold and use.
    """
    if processes(device, open_nvml):
        return [SHARED]
    try:
        nvml = open_nvml()
    except NvmlMissingError:
        return []
    gpu = Device(nvml, reading(nvml.nvmlDeviceGetHandleByIndex, device))
    memory, rates = gpu.ask_quietly("MemoryInfo"), gpu.ask_quietly("UtilizationRates")
    found = []
    if memory and memory.used > IDLE_BYTES:
        found.append(f"{memory.used / GIB:.1f} GiB of its memory were in use before")
    if rates and rates.gpu > IDLE_PERCENT:
        found.append(f"it was busy {rates.gpu} % of the time before")
    return found


def refuse_busy(devices: Iterable[int], open_nvml: Callable[[], Any] = load) -> None:
    """Raises BusyGpuError where another process uses one of the devices."""
    for device in devices:
        if found := processes(device, open_nvml):
            names = ", ".join(map(str, found))
            raise BusyGpuError(
                f"GPU {device} is in use by process {names}; end it, or measure beside it with --force."
            )
