"""The board's limit was lowered from 700 W, and the device runs against it."""

from faults.labels import Fault
from faults.telemetry.builder import Synthetic

FAULT = Fault(
    kind="device-power-limit",
    expected=["device-power-limit"],
    forbidden=["device-thermal", "device-low-clocks", "device-power-brake"],
    share=[0.1, 0.2, 0.35],
    why="kernels follow the clock, which the limit holds at 90, 80, 65 % of its maximum",
)


def build(form: str, severity: int) -> Synthetic:
    if form == "mended":
        return Synthetic()
    limit, clock = [(500.0, 0.9), (400.0, 0.8), (300.0, 0.65)][severity - 1]
    sensors = {"power_w": limit - 3, "sm_clock_mhz": round(1980 * clock), "throttle": 0x4}
    return Synthetic(sensors, {"power_limit_w": limit}, clock)
