"""The newest readings of the sensors, from the telemetry that the recorder samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fathom.analysis.live import HOST, DeviceView
from fathom.machine.model import Machine
from fathom.machine.nvml import REASONS
from fathom.units import NS_PER_S
from fathom.watch.following import Follower, Record

INTERVAL_NS = NS_PER_S  # between two readings that give a rate
PLAIN = (
    *("power_w", "energy_j", "sm_clock_mhz", "memory_clock_mhz", "temperature_c", "busy_percent"),
    "memory_bytes",
)
HOST_PLAIN = ("energy_j", "busy_percent", "memory_bytes")


class Devices:
    """Follows `telemetry.jsonl`; `machine` is the inventory of `launch.json`, for names and sizes."""

    def __init__(self, file: Path, machine: Machine) -> None:
        self.follower = Follower(file)
        self._gpus = machine.get("gpus") or []
        self._host = machine.get("host") or {}
        self._newest: dict[int, Record] = {}
        self._before: dict[int, Record] = {}  # readings that are INTERVAL_NS older
        self._next: dict[int, Record] = {}

    def poll(self) -> None:
        """Read what was appended since the last call."""
        for row in self.follower.records():
            device, now = row.get("device"), row.get("time_ns")
            if isinstance(device, int) and isinstance(now, int):
                self._newest[device] = row
                base = self._next.setdefault(device, row)
                if now - base["time_ns"] >= INTERVAL_NS:
                    self._before[device], self._next[device] = base, row

    def view(self) -> list[DeviceView]:
        """Return the GPUs in their order, then the host."""
        return [
            self._view(device) for device in sorted(self._newest, key=lambda device: (device < 0, device))
        ]

    def _view(self, device: int) -> DeviceView:
        row = self._newest[device]
        names = HOST_PLAIN if device == HOST else PLAIN
        plain: dict[str, Any] = {name: _number(row.get(name)) for name in names}
        about = self._about(device)
        if device == HOST:
            return DeviceView(device, power_w=self._rate(device, "energy_j"), **about, **plain)
        throttle = row.get("throttle")
        reasons = [text for bit, text in REASONS.items() if int(throttle) & bit] if throttle else []
        return DeviceView(
            device,
            **about,
            **plain,
            throttle=None if throttle is None else reasons,
            link_rx_bytes_per_s=self._rate(device, "link_rx_bytes"),
            link_tx_bytes_per_s=self._rate(device, "link_tx_bytes"),
        )

    def _about(self, device: int) -> dict[str, Any]:
        if device == HOST:
            return {"name": "host", "total_bytes": _number(self._host.get("memory_bytes"))}
        gpu = self._gpus[device] if 0 <= device < len(self._gpus) else {}
        return {"name": str(gpu.get("name") or ""), "total_bytes": _number(gpu.get("memory_bytes"))}

    def _rate(self, device: int, name: str) -> float | None:
        before, now = self._before.get(device, {}), self._newest[device]
        first, last = _number(before.get(name)), _number(now.get(name))
        if first is None or last is None or last < first or now["time_ns"] <= before["time_ns"]:
            return None
        return (last - first) * NS_PER_S / (now["time_ns"] - before["time_ns"])


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
