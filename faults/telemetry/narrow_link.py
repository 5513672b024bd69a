"""The device's PCIe link came up with fewer lanes than it has, or an older generation."""

from faults.labels import Fault
from faults.telemetry.builder import Synthetic

FAULT = Fault(
    kind="device-link-degraded",
    expected=["device-link-degraded"],
    forbidden=["input-pageable-copy", "device-low-clocks", "device-power-limit"],
    allowed=["input-copy-not-overlapped"],
    share=[0.17, 0.39, 0.58],
    why="a copy of 268 MB takes 10, 20, 36 ms instead of 5 before 20 ms of computation",
)


def build(form: str, severity: int) -> Synthetic:
    if form == "mended":
        return Synthetic(overlapped=False)
    width, generation, rate = [(8, 5, 27.0), (16, 3, 13.0), (2, 5, 6.8)][severity - 1]
    return Synthetic({}, {"pcie_width": width, "pcie_generation": generation}, 1.0, rate, overlapped=False)
