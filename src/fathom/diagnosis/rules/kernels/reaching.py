"""The memory rate of the library's kernels."""

from __future__ import annotations

from collections.abc import Iterable

from fathom.diagnosis.signals import Signals, UnknownSignalError, Work
from fathom.units import MS_PER_S


def memory_rate(signals: Signals, reached: float, mine: Iterable[Work]) -> float:
    """Bytes per second: `reached` of the measured ceiling, or the rate of the kernels of `mine`.

    The library's kernel is at least as fast as they are, so their rate is used if the ceiling was not
    measured. Raises UnknownSignalError if their bytes are unknown too.
    """
    ceilings = signals.get("kernels.ceilings")
    measured = (ceilings.value or {}).get("memory")
    if measured:
        return reached * measured
    families = {work.family for work in mine}
    known = [row for row in signals["step.ledger"] if row.detail in families and row.bytes and row.ms > 0]
    if not known:
        raise UnknownSignalError(ceilings.why or "the memory ceiling is unknown")
    return MS_PER_S * sum(row.bytes for row in known) / sum(row.ms for row in known)
