"""Detect other users of a GPU that is about to be measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from fathom.errors import FathomError
from fathom.machine.nvml import Device, NvmlMissingError, load, reading
from fathom.units import GIB

SHARED = "another process used the GPU meanwhile"
IDLE_BYTES = 2**31  # the most memory that the driver itself uses on an idle GPU
IDLE_PERCENT = 10


class BusyGpuError(FathomError):
    """Another process uses the GPU, so its measurements would not be ceilings."""


def processes(device: int, open_nvml: Callable[[], Any] = load) -> list[int]:
    """Return the ids of other compute processes on this GPU; [] if the driver does not report them."""
    try:
        nvml = open_nvml()
    except NvmlMissingError:
        return []
    handle = reading(nvml.nvmlDeviceGetHandleByIndex, device)
    running = reading(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return sorted({int(process.pid) for process in running} - {os.getpid()})


def traces(device: int, open_nvml: Callable[[], Any] = load) -> list[str]:
    """Return the reasons to doubt that a GPU was idle before its measurement.

    A container hides the processes of others, but the driver reports their memory and utilisation.
    """
    if processes(device, open_nvml):
        return [SHARED]
    try:
        nvml = open_nvml()
    except NvmlMissingError:
        return []
    gpu = Device(nvml, reading(nvml.nvmlDeviceGetHandleByIndex, device))
    memory, rates = gpu.ask_quietly("MemoryInfo"), gpu.ask_quietly("UtilizationRates")
    reasons = []
    if memory and memory.used > IDLE_BYTES:
        reasons.append(f"{memory.used / GIB:.1f} GiB of its memory were already in use")
    if rates and rates.gpu > IDLE_PERCENT:
        reasons.append(f"it was already busy {rates.gpu} % of the time")
    return reasons


def refuse_busy(devices: Iterable[int], open_nvml: Callable[[], Any] = load) -> None:
    """Raises BusyGpuError if another process uses one of the devices."""
    for device in devices:
        if pids := processes(device, open_nvml):
            names = ", ".join(map(str, pids))
            raise BusyGpuError(
                f"GPU {device} is in use by process {names}; end it, or use --force to measure anyway."
            )
