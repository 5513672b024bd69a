"""The GPU's state during a measurement: clocks, power, temperature, throttle reasons."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Any, cast

import numpy as np

from fathom.machine.model import Conditions
from fathom.machine.nvml import REASONS, NvmlMissingError, load, reading, visible

PERIOD = 0.02  # seconds between samples
# The NVML function of each reading, and the name of its constant argument.
READS: dict[str, tuple[str, ...]] = {
    "sm_clock_mhz": ("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
    "memory_clock_mhz": ("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
    "power_mw": ("nvmlDeviceGetPowerUsage",),
    "temperature_c": ("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
    "reasons": ("nvmlDeviceGetCurrentClocksThrottleReasons",),
}
DOUBTFUL = frozenset({0x8, 0x20, 0x40, 0x80})  # reasons that mean a lack of cooling or power


class ConditionSensors:
    """The sensors of the first visible GPU; without NVML there are no readings."""

    def __init__(
        self, open_nvml: Callable[[], Any] = load, environment: Mapping[str, str] = os.environ
    ) -> None:
        self.nvml: Any = None
        try:
            self.nvml = open_nvml()
            self.handle = (visible(self.nvml, environment) or [None])[0]
        except NvmlMissingError:
            return
        if self.handle is None:
            self.nvml = None

    def read(self, *names: str) -> dict[str, float]:
        """Return the readings of the sensors `names`, by default all; failed readings are left out."""
        if self.nvml is None:
            return {}
        looks = {}
        for name in names or READS:
            function, *constants = (getattr(self.nvml, word) for word in READS[name])
            looks[name] = reading(function, self.handle, *constants)
        return {name: value for name, value in looks.items() if value is not None}


class Watch:
    """Sample the sensors while the `with` block runs. With `thread=False`, sample once, at its end."""

    def __init__(self, sensors: ConditionSensors, *, thread: bool = True) -> None:
        self.sensors, self.looks = sensors, list[dict[str, float]]()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True) if thread else None

    def __enter__(self) -> Watch:
        if self._thread is not None:
            self._thread.start()
        return self

    def _go_on(self) -> None:
        while not self._done.wait(PERIOD):
            self.looks.append(self.sensors.read())

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        if not self.looks:
            self.looks.append(self.sensors.read())

    @property
    def conditions(self) -> Conditions:
        """The medians over the block, and every throttle reason seen in it."""
        return summary(self.looks)

    @property
    def flags(self) -> tuple[str, ...]:
        """The throttle reasons seen in the block that mean a lack of cooling or power, in words."""
        seen = _bits(self.looks)
        return tuple(f"the clocks were throttled: {REASONS[bit]}" for bit in sorted(DOUBTFUL) if seen & bit)


def summary(looks: list[dict[str, float]]) -> Conditions:
    """Return the medians of the readings `looks`, the lowest SM clock, and all throttle reasons.

    Keys: sm_clock_mhz, sm_clock_min_mhz, memory_clock_mhz, power_w, temperature_c, throttle. Unknown values
    are left out.
    """

    def middle(name: str) -> float | None:
        values = [look[name] for look in looks if name in look]
        return float(np.median(values)) if values else None

    clocks = [look["sm_clock_mhz"] for look in looks if "sm_clock_mhz" in look]
    power = middle("power_mw")
    readings = {
        "sm_clock_mhz": middle("sm_clock_mhz"),
        "sm_clock_min_mhz": min(clocks, default=None),
        "memory_clock_mhz": middle("memory_clock_mhz"),
        "power_w": None if power is None else power / 1000,
        "temperature_c": middle("temperature_c"),
    }
    known = cast(Conditions, {name: value for name, value in readings.items() if value is not None})
    if any("reasons" in look for look in looks):
        seen = _bits(looks)
        known["throttle"] = [name for bit, name in REASONS.items() if seen & bit]
    return known


def _bits(looks: list[dict[str, float]]) -> int:
    return reduce(or_, (int(look.get("reasons", 0)) for look in looks), 0)
