"""Sensor readings of each visible GPU and of the host, as rows of the `telemetry` table."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fathom.machine.nvml import NvmlMissingError, load, reading, visible
from fathom.recorder.tree import ProcessTree

HOST = -1
# Between looks for new processes: at least, as a share of the time so far, and at most.
OFTEN_S, RARELY, SELDOM_S = 1.0, 0.01, 10.0
TelemetryRow = dict[str, object]
_ALL_LINKS = 0xFFFFFFFF  # scope of an NVLink counter: all links of the device


class GpuSensors:
    """Sensors of one GPU. `device` is the GPU's index in the program."""

    def __init__(self, nvml: Any, handle: Any, device: int) -> None:
        self.nvml, self.handle, self.device = nvml, handle, device
        self._sensors = {
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            "energy_j": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3,
            "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "busy_percent": lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            "memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
            "throttle": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        }
        self._sensors = {name: read for name, read in self._sensors.items() if reading(read) is not None}
        self._links = self._read_links() is not None

    def _read_links(self) -> tuple[int, int] | None:
        """Return bytes received and sent over NVLink since the driver was loaded, or None without NVLink."""
        nvml = self.nvml
        fields = [
            (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
            (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
        ]
        values = reading(nvml.nvmlDeviceGetFieldValues, self.handle, fields)
        if not values or any(value.nvmlReturn != nvml.NVML_SUCCESS for value in values):
            return None
        received, sent = (value.value.ullVal * 1024 for value in values)
        return received, sent

    def read(self) -> TelemetryRow:
        """Return one row. Sensors that the device lacks are omitted; a failed reading is None."""
        row: TelemetryRow = {
            "device": self.device,
            **{name: reading(read) for name, read in self._sensors.items()},
        }
        if self._links and (links := self._read_links()):
            row["link_rx_bytes"], row["link_tx_bytes"] = links
        return row


class HostSensors:
    """Host sensors: energy of the CPU packages, load, the program's part of it, and its resident memory."""

    def __init__(self, tree: ProcessTree, rapl: Rapl) -> None:
        self.tree, self.rapl = tree, rapl
        self._begun = self._refreshed = time.monotonic()
        self._busy = _cpu_percent()
        self._program = ProgramLoad(tree)

    def read(self) -> TelemetryRow:
        """Return one row; `busy_percent` is the load of all cores since the last reading."""
        now = time.monotonic()
        if now - self._refreshed >= min(SELDOM_S, max(OFTEN_S, RARELY * (now - self._begun))):
            self.tree.refresh()
            self._refreshed = time.monotonic()
        return {
            "device": HOST,
            "energy_j": self.rapl.joules(),
            "busy_percent": self._busy and self._busy(),
            "program_percent": self._program.percent(),
            "memory_bytes": self.tree.resident_bytes(),
        }


def _cpu_percent() -> Callable[[], float] | None:
    try:
        import psutil
    except ImportError:
        return None
    psutil.cpu_percent(None)
    return lambda: psutil.cpu_percent(None)


class ProgramLoad:
    """The share of all processors' time that a program and its descendants use."""

    def __init__(self, tree: ProcessTree) -> None:
        self._tree = tree
        self._used, self._at = tree.processor_seconds(), time.monotonic()

    def percent(self) -> float | None:
        """Return the share since the last call in %; None if it is unknown or a process has ended."""
        used, now = self._tree.processor_seconds(), time.monotonic()
        before, passed = self._used, (now - self._at) * (os.cpu_count() or 1)
        self._used, self._at = used, now
        known = used is not None and before is not None and used >= before and passed > 0
        return 100 * (used - before) / passed if known else None  # type: ignore[operator]


class Rapl:
    """Energy counters of all CPU packages, summed, with wrap-around removed."""

    def __init__(self, root: Path = Path("/sys/class/powercap")) -> None:
        zones = sorted(z for z in root.glob("intel-rapl:*") if z.name.count(":") == 1)
        self._zones = [(z / "energy_uj", _number(z / "max_energy_range_uj") or 0) for z in zones]
        self._zones = [(file, wrap) for file, wrap in self._zones if _number(file) is not None]
        self._last = [0] * len(self._zones)
        self._carried = 0

    def joules(self) -> float | None:
        """Return the sum in joules, which never decreases; None if no counter can be read."""
        now = [_number(file) for file, _ in self._zones]
        known = [value for value in now if value is not None]
        if not known or len(known) < len(now):
            return None
        zones = zip(self._zones, self._last, known, strict=True)
        self._carried += sum(wrap for (_, wrap), before, value in zones if value < before)
        self._last = known
        return (sum(known) + self._carried) / 1e6


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def all_sensors(
    program: int, environment: Mapping[str, str] = os.environ
) -> tuple[list[GpuSensors | HostSensors], str | None]:
    """Return all sensors for the process id `program`, and the reason if GPUs are missing, else None."""
    host = HostSensors(ProcessTree(program), Rapl())
    try:
        nvml = load()
        gpus = [GpuSensors(nvml, handle, device) for device, handle in enumerate(visible(nvml, environment))]
    except NvmlMissingError as error:
        return [host], str(error)
    except Exception as error:  # such as a GPU that fell off the bus; the program is already running
        return [host], f"the driver's management library failed ({error})"
    return [*gpus, host], None if gpus else "no GPU is visible to the program"
