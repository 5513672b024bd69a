"""Join the requests' ledger with the device's: the part of iterations and prefills at the ceiling."""

from __future__ import annotations

from collections.abc import Sequence

from fathom.analysis.results import Device, LedgerRow, StepKind
from fathom.analysis.serving import Entry, Serving


def join(serving: Serving, devices: Sequence[Device], kinds: Sequence[StepKind]) -> None:
    """Set the shares at the ceiling of the iterations' kinds, and of the slowest requests' prefills."""
    shares = dict(_shares(devices, kinds))
    for iteration in serving.iterations:
        iteration.at_ceiling = shares.get(iteration.kind)
    reads = shares.get("prefill", shares.get("mixed"))
    if reads is not None:
        for request in serving.slowest:
            request.at_ceiling_ms = reads * request.entries.get(Entry.PREFILL, 0.0)


def _shares(devices: Sequence[Device], kinds: Sequence[StepKind]) -> list[tuple[str, float]]:
    """Return the share of each kind's time that its modelled work needs at the ceilings."""
    rows = [(kind.name, devices[0].ledger if kind.used and devices else kind.ledger) for kind in kinds]
    return [(name, _share(ledger)) for name, ledger in rows if any(row.at_ceiling_ms for row in ledger)]


def _share(ledger: Sequence[LedgerRow]) -> float:
    total = sum(row.ms for row in ledger)
    return min(sum(row.at_ceiling_ms or 0.0 for row in ledger) / total, 1.0) if total else 0.0
