"""The rate at which kernels of the library go through memory."""

from __future__ import annotations

from collections.abc import Iterable

from fathom.diagnosis.signals import Signals, UnknownSignalError, Work
from fathom.units import MS_PER_S


def memory_rate(signals: Signals, reached: float, mine: Iterable[Work]) -> float:
    """Bytes a second: `reached` of the measured ceiling, or what the kernels of `mine` reach by themselves.

    The library's kernel reads and writes as they do, so where nobody measured the ceiling it is no slower
    than they are together. Raises UnknownSignalError where their bytes are not known either.
    """
    ceilings = signals.get("kernels.ceilings")
    measured = (ceilings.value or {}).get("memory")
    if measured:
        return reached * measured
    families = {work.family for work in mine}
    known = [row for row in signals["step.ledger"] if row.detail in families and row.bytes and row.ms > 0]
    if not known:
        raise UnknownSignalError(ceilings.why or "the ceiling of memory is not known")
    return MS_PER_S * sum(row.bytes for row in known) / sum(row.ms for row in known)
