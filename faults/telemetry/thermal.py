"""The device grows hot in the course of the run, and its clocks fall."""

from faults.labels import Fault
from faults.telemetry.builder import Synthetic

FAULT = Fault(
    kind="device-thermal",
    expected=["device-thermal"],
    forbidden=["device-power-limit", "device-low-clocks", "device-power-brake"],
    share=[0.08, 0.2, 0.4],
    why="kernels follow the clock, on average at 92, 80, 60 % of its maximum",
)


def build(form: str, severity: int) -> Synthetic:
    if form == "mended":
        return Synthetic()
    clock, bits = [(0.92, 0x20), (0.8, 0x20), (0.6, 0x60)][severity - 1]
    sensors = {
        "temperature_c": lambda when: 76 + 11 * min(1.0, 3 * when),
        "sm_clock_mhz": lambda when: round(1980 * (clock if when > 0.2 else 1 - (1 - clock) * 5 * when)),
        "power_w": 520 * clock,
        "throttle": lambda when: bits if when > 0.05 else 0,
    }
    return Synthetic(sensors, {}, clock)
