"""A power supply of the machine failed, and the board brakes the device."""

from faults.labels import Fault
from faults.telemetry.builder import Synthetic

FAULT = Fault(
    kind="device-power-brake",
    expected=["device-power-brake"],
    forbidden=["device-power-limit", "device-thermal", "device-low-clocks"],
    share=[0.3, 0.5, 0.75],
    why="kernels follow the clock, which is cut to 70, 50, 25 %",
)


def build(form: str, severity: int) -> Synthetic:
    if form == "mended":
        return Synthetic()
    clock = [0.7, 0.5, 0.25][severity - 1]
    sensors = {"sm_clock_mhz": round(1980 * clock), "power_w": 430 * clock, "throttle": 0x88}
    return Synthetic(sensors, {}, clock)
