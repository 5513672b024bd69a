"""A whole step at the speed of light, and how well it uses the matrix units."""

from __future__ import annotations

from collections.abc import Mapping

from fathom.analysis.entries import IDLE, WORK, Entry
from fathom.analysis.results import Device, LedgerRow, Utilisation
from fathom.machine import Limits
from fathom.units import MS_PER_S

_NO_WORK = (IDLE, Entry.OVERHEAD, Entry.UNATTRIBUTED)
LITTLE = 0.01  # of the working time: what may hide products without making the FLOPs a lower bound
BEYOND = 1.1  # times the peak: from there on it was measured too low
CONVENTION = (
    "MFU: algorithmic FLOPs of matrix products, convolutions and attention (causal masks halved, "
    "recomputation not counted) a step over the peak of their dtype; HFU: the same with what was recomputed"
)


def at_ceiling(device: Device, limits: Limits | None) -> None:
    """Fill in `at_ceiling_ms` of a device: what its work needs, or launching it where that takes longer."""
    working = [one for one in device.ledger if not one.entry.startswith(_NO_WORK)]
    known = [entry for entry in working if entry.at_ceiling_ms is not None]
    busy = sum(entry.ms for entry in working)
    if limits is None or not known or not busy:
        return
    for entry in (*device.ledger, *device.profiled_ledger, *device.mean_ledger):
        if entry.entry.startswith(IDLE):
            entry.at_ceiling_ms = 0.0
    needed = sum(min(entry.at_ceiling_ms or 0.0, entry.ms) for entry in known)  # at most what it took
    launched = sum(entry.count or 0 for entry in working) * (limits.launch_s or 0.0) * MS_PER_S
    device.at_ceiling_ms = max(needed, launched)
    device.at_ceiling_bound = "work" if needed >= launched else "launches"
    device.at_ceiling_known = sum(entry.ms for entry in known) / busy


def utilisation(
    ledger: list[LedgerRow], step_ms: float, limits: Limits | None, datasheet: Mapping[str, float] | None
) -> Utilisation | None:
    """MFU and HFU of a step of `step_ms`; None where no product's FLOPs or no peak of theirs is known.

    `datasheet` has dense peaks in FLOP/s by the names of ceilings. Measured ones that products beat are none.
    """
    products = [entry for entry in ledger if entry.product_flops and entry.unit]
    measured = limits.arithmetic if limits and not _beaten(products, limits) else {}
    mfu, published = (_share(products, peaks, step_ms) for peaks in (measured, datasheet or {}))
    if mfu is None and published is None:
        return None
    return Utilisation(
        mfu=mfu,
        hfu=_share(products, measured, step_ms, again=True),
        mfu_datasheet=published,
        flops=sum(entry.product_flops - entry.recomputed_flops for entry in products),
        partial=_uncounted(ledger) > LITTLE,
        convention=CONVENTION,
    )


def _beaten(products: list[LedgerRow], limits: Limits) -> bool:
    """Whether products ran faster than the peaks that were measured: no share of such peaks says anything."""
    took = sum(entry.ms if entry.own_ms is None else entry.own_ms for entry in products)
    share = _share(products, limits.arithmetic, took, again=True) if took else None
    return share is not None and share > BEYOND


def _uncounted(ledger: list[LedgerRow]) -> float:
    """The share of the working time of which nothing is known, so that it may hold products."""
    working = [entry for entry in ledger if entry.entry in WORK]
    unknown = sum(entry.ms for entry in working if entry.bytes is None)
    return unknown / max(sum(entry.ms for entry in working), 1e-9)


def _share(
    products: list[LedgerRow], peaks: Mapping[str, float], step_ms: float, again: bool = False
) -> float | None:
    """What the products need at `peaks`, as a share of the step; None where a dtype's peak is not known."""
    needed = 0.0
    for entry in products:
        if not peaks.get(entry.unit or ""):
            return None
        flops = entry.product_flops - (0.0 if again else entry.recomputed_flops)
        needed += flops / peaks[entry.unit or ""]
    return needed * MS_PER_S / step_ms if products else None
