"""Detect other users of the processors and GPUs that are being measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import psutil

from fathom.errors import FathomError
from fathom.machine.nvml import NvmlDevice, NvmlMissingError, load, other_processes, reading
from fathom.units import GIB

MUCH = 0.1  # share of all processors; if others use more, the measurement is doubtful
_IDLE = ("idle", "iowait")
SHARED = "another process used the GPU meanwhile"
IDLE_BYTES = 2**31  # the most memory that the driver itself uses on an idle GPU
IDLE_PERCENT = 10


class Contention:
    """Context manager that measures the share of the processors that other processes use.

    Afterwards `others` is the share, 0 to 1, and `flags` has a reason for doubt if it is over MUCH. Time
    stolen by a hypervisor counts too.
    """

    def __init__(
        self,
        system: Callable[[], Any] = psutil.cpu_times,
        own: Callable[[], Any] = lambda: psutil.Process().cpu_times(),
    ) -> None:
        self._system, self._own = system, own
        self.others = 0.0  # share of all processors, 0 to 1

    def __enter__(self) -> Contention:
        self._before = self._look()
        return self

    def __exit__(self, *_: object) -> None:
        total, busy, own = (now - then for now, then in zip(self._look(), self._before, strict=True))
        self.others = max(busy - own, 0.0) / total if total > 0 else 0.0

    def _look(self) -> tuple[float, float, float]:
        """Return seconds summed over all processors: elapsed, busy, used by this process and its children."""
        times = self._system()._asdict()
        # User time already includes guest time.
        passed = sum(seconds for name, seconds in times.items() if not name.startswith("guest"))
        idle = sum(times.get(name, 0.0) for name in _IDLE)
        return passed, passed - idle, sum(self._own()[:4])

    @property
    def flags(self) -> list[str]:
        """The reasons to doubt the measurement; [] if there are none."""
        return (
            [f"others used {100 * self.others:.0f} % of the processors meanwhile"]
            if self.others > MUCH
            else []
        )


class BusyGpuError(FathomError):
    """Another process uses the GPU, so measurements on it would be too low."""


def processes(device: int, open_nvml: Callable[[], Any] = load) -> list[int]:
    """Return the ids of other compute processes on this GPU; [] if the driver does not report them."""
    gpu = _device(device, open_nvml)
    return other_processes(gpu.nvml, [gpu.handle]) if gpu else []


def _device(index: int, open_nvml: Callable[[], Any]) -> NvmlDevice | None:
    try:
        nvml = open_nvml()
    except NvmlMissingError:
        return None
    return NvmlDevice(nvml, reading(nvml.nvmlDeviceGetHandleByIndex, index))


def traces(device: int, open_nvml: Callable[[], Any] = load) -> list[str]:
    """Return the reasons to doubt that GPU `device` was idle before its measurement.

    A container hides other containers' processes, but the driver still reports their memory and utilisation.
    """
    gpu = _device(device, open_nvml)
    if gpu is None:
        return []
    if other_processes(gpu.nvml, [gpu.handle]):
        return [SHARED]
    memory, rates = gpu.ask_quietly("MemoryInfo"), gpu.ask_quietly("UtilizationRates")
    reasons = []
    if memory and memory.used > IDLE_BYTES:
        reasons.append(f"{memory.used / GIB:.1f} GiB of its memory were already in use")
    if rates and rates.gpu > IDLE_PERCENT:
        reasons.append(f"it was already busy {rates.gpu} % of the time")
    return reasons


def refuse_busy(devices: Iterable[int], open_nvml: Callable[[], Any] = load) -> None:
    """Raise BusyGpuError if another process uses one of the devices."""
    for device in devices:
        if pids := processes(device, open_nvml):
            names = ", ".join(map(str, pids))
            raise BusyGpuError(
                f"GPU {device} is in use by process {names}; end it, or use --force to measure anyway."
            )
