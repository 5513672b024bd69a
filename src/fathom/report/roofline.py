"""The roofline as a table: each family's ceiling, its share of it, and the time lost."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from fathom.analysis.results import Device, LedgerRow
from fathom.report import units
from fathom.report.ledger import name, ran_ms

_WIDTH = 63  # of the columns right of the name
_BOUND = 18


def roofline(device: Device, width: int, top: int | None) -> Iterator[Text]:
    """Families by the time lost to their ceiling, largest first."""
    known = [entry for entry in device.ledger if entry.at_ceiling_ms is not None and entry.bound]
    if not known:
        return
    room = width - _WIDTH
    unit = units.flops_unit(max(entry.flops_per_s or 0.0 for entry in known))
    head = f"{'ms':>8}{'FLOP/B':>8}{unit[0]:>9}{'GB/s':>8}  {'bound':<{_BOUND - 2}}{'%':>5}{'lost':>7}"
    yield Text(f"{'roofline':<{room}}{head}"[:width], "dim underline")
    ordered = sorted(known, key=lambda entry: -_lost(entry))
    for entry in ordered[:top]:
        yield _row(entry, room, unit[1])
    if top is not None and len(ordered) > top:
        rest = sum(_lost(entry) for entry in ordered[top:])
        yield Text(f"{len(ordered) - top} other families lose {units.duration(rest)} together", "dim")


def _row(entry: LedgerRow, room: int, flops: float) -> Text:
    need = entry.at_ceiling_ms or 0.0
    rates = f"{units.rate(entry.flops_per_s, flops):>9}{units.rate(entry.bytes_per_s, 1e9):>8}"
    share = 100 * need / ran_ms(entry)
    label = f"{units.shorten(name(entry), room - 1):<{room}}"
    bound = f"{units.shorten(entry.bound, _BOUND - 3):<{_BOUND - 2}}"
    line = Text(f"{label}{units.significant(entry.ms):>8}{_intensity(entry):>8}{rates}  {bound}")
    line.append(f"{share:>5.0f}", "green" if share >= 80 else "yellow" if share >= 40 else "red")
    return line.append(f"{units.significant(_lost(entry), 2):>7}")


def _lost(entry: LedgerRow) -> float:
    return entry.ms - (entry.at_ceiling_ms or 0.0)


def _intensity(entry: LedgerRow) -> str:
    return units.significant(entry.flops / entry.bytes) if entry.flops and entry.bytes else ""
