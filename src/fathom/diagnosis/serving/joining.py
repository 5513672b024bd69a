"""Join the requests with the device: parts at the ceiling, the floor of decodes, energy."""

from __future__ import annotations

from collections.abc import Sequence

from fathom.analysis.results import Device, Energy, LedgerRow, StepKind
from fathom.analysis.serving import DecodeFloor, Entry, Serving
from fathom.machine import Ceiling, find_ceiling
from fathom.sounding import Store
from fathom.units import MS_PER_S


def join(serving: Serving, devices: Sequence[Device], kinds: Sequence[StepKind]) -> None:
    """Set the shares at the ceiling of the iterations' kinds, and of the slowest requests' prefills."""
    shares = dict(_shares(devices, kinds))
    for iteration in serving.iterations:
        iteration.at_ceiling = shares.get(iteration.kind)
    reads = shares.get("prefill", shares.get("mixed"))
    if reads is not None:
        for request in serving.slowest:
            request.at_ceiling_ms = reads * request.entries.get(Entry.PREFILL, 0.0)


def set_costs(serving: Serving, store: Store, ceilings: Sequence[Ceiling], energy: Energy | None) -> None:
    """Set tokens per joule, and the floor that reading the weights sets for decodes."""
    known = [store.table("iterations", rank).collect()["weights"].drop_nulls() for rank in store.ranks]
    serving.decode_floor = decode_floor(serving, next((w[0] for w in known if len(w)), None), ceilings)
    watts = (energy.mean_power_w or energy.host_mean_power_w) if energy else None
    serving.tokens_per_joule = serving.tokens_per_s / watts if watts and serving.tokens_per_s else None


def decode_floor(serving: Serving, weights: int | None, ceilings: Sequence[Ceiling]) -> DecodeFloor | None:
    """Return the least time of a decode; None if weights, bandwidth or decodes are not known."""
    bandwidth = find_ceiling(ceilings, "hbm.read") or find_ceiling(ceilings, "host.read")
    decodes = next((kind for kind in serving.iterations if kind.kind == "decode"), None)
    if not weights or bandwidth is None or decodes is None or not decodes.p50_ms:
        return None
    ms = MS_PER_S * weights / bandwidth.value
    rate = MS_PER_S * decodes.requests / ms
    return DecodeFloor(weights, bandwidth.value, bandwidth.id, ms, min(ms / decodes.p50_ms, 1.0), rate)


def _shares(devices: Sequence[Device], kinds: Sequence[StepKind]) -> list[tuple[str, float]]:
    """Return the share of each kind's time that its modelled work needs at the ceilings."""
    rows = [(kind.name, devices[0].ledger if kind.used and devices else kind.ledger) for kind in kinds]
    return [(name, _share(ledger)) for name, ledger in rows if any(row.at_ceiling_ms for row in ledger)]


def _share(ledger: Sequence[LedgerRow]) -> float:
    total = sum(row.ms for row in ledger)
    return min(sum(row.at_ceiling_ms or 0.0 for row in ledger) / total, 1.0) if total else 0.0
