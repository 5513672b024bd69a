"""The device's memory is failing: errors are corrected, rows wait to be remapped."""

from faults.labels import Fault
from faults.telemetry.builder import Synthetic

FAULT = Fault(
    kind="device-ecc",
    expected=["device-ecc"],
    forbidden=["device-thermal", "device-power-limit", "device-low-clocks"],
    share=[0.0, 0.0, 0.0],
    why="it costs no time until it costs the run",
    known_gap="an inventory says whether ECC is on, and does not hold its counts yet",
)


def build(form: str, severity: int) -> Synthetic:
    if form == "mended":
        return Synthetic()
    corrected, uncorrected, pending = [(200, 0, False), (20_000, 0, True), (20_000, 3, True)][severity - 1]
    counts = {"corrected": corrected, "uncorrected": uncorrected, "rows_remapped": 4, "rows_pending": pending}
    return Synthetic({}, {"ecc_errors": counts})
