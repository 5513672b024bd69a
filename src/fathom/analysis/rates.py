"""Rates that no machine reaches: they are marked, with the ceiling that they exceed, or taken back."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.analysis.results import LedgerRow
from fathom.machine import Limits
from fathom.machine.datasheet import Sheet
from fathom.units import MS_PER_S

BEYOND = 1.1  # times the ceiling: what is above it is no rate
COMPILED = "triton_"  # what TorchInductor calls its kernels
PARTS = "the compiled kernel moves a part of its arguments: all of them would take longer than it ran"
_LINKED = (Entry.COMMUNICATION, Entry.MOVING_BYTES)
_PATHS = {"HtoD": "pcie", "DtoH": "pcie", "PtoP": "link", "DtoD": "hbm"}


def check_rates(ledger: list[LedgerRow], limits: Limits | None, sheet: Sheet | None) -> None:
    """Set `problem` of entries whose rate exceeds BEYOND of a ceiling, measured or else of the datasheet.

    The bytes of a compiled kernel are those of all its arguments; where it cannot have read them all, they
    and what follows from them are taken back, with the reason in `abstained`.
    """
    for entry in ledger:
        times, ceiling = _times(entry, limits, sheet)
        if times <= BEYOND:
            continue
        if entry.detail.startswith(COMPILED) and not entry.product_flops:
            _take_back(entry)
        else:
            entry.problem = f"{100 * times:.0f} % of {ceiling}"


def _times(entry: LedgerRow, limits: Limits | None, sheet: Sheet | None) -> tuple[float, str]:
    """How many times its ceiling an entry's rate is, and which; 0 where there is none."""
    if entry.at_ceiling_ms is not None and entry.own_ms and entry.bound:
        return entry.at_ceiling_ms / entry.own_ms, f"the measured ceiling ({entry.bound})"
    if sheet is None or limits is not None or not entry.own_ms:
        return 0.0, ""
    name, rate = _published(entry)
    figure = sheet.figures.get(name)
    return (rate / figure.value, f"the datasheet's {name}") if figure and figure.value else (0.0, "")


def _published(entry: LedgerRow) -> tuple[str, float]:
    """What of a datasheet bounds an entry, and its rate in that; caches exceed any memory's figure."""
    moved = entry.bytes_per_s or 0.0
    if entry.entry in _LINKED:
        return "link", moved
    if entry.entry == Entry.COPY:
        return _PATHS.get(entry.detail.split(" ")[0], ""), moved
    return entry.unit or "", entry.product_flops / ((entry.own_ms or 0.0) / MS_PER_S) if entry.own_ms else 0.0


def _take_back(entry: LedgerRow) -> None:
    entry.bytes = entry.bytes_per_s = entry.at_ceiling_ms = None
    entry.bound, entry.unbounded, entry.abstained = "", PARTS, PARTS
