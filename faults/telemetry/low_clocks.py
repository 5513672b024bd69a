"""Somebody locked the clocks to measure something, and left them so."""

from faults.labels import Fault
from faults.telemetry.builder import Synthetic

FAULT = Fault(
    kind="device-low-clocks",
    expected=["device-low-clocks"],
    forbidden=["device-power-limit", "device-thermal", "device-power-brake"],
    share=[0.1, 0.25, 0.45],
    why="kernels follow the clock: 1785, 1485, 1095 of 1980 MHz",
)


def build(form: str, severity: int) -> Synthetic:
    if form == "mended":
        return Synthetic()
    mhz = [1785, 1485, 1095][severity - 1]
    sensors = {"sm_clock_mhz": mhz, "power_w": 520 * mhz / 1980, "throttle": 0x2, "temperature_c": 47}
    return Synthetic(sensors, {}, mhz / 1980)
