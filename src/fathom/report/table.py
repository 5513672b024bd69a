"""The ledger of one device: a stacked bar, a table that adds up to the clean step, and the roofline."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace
from rich.text import Text

from fathom.analysis.entries import COLLECTIVES, cause_of, meaning_of
from fathom.analysis.results import Device, LedgerRow
from fathom.machine import DATASHEET
from fathom.report import units
from fathom.report.ledger import LedgerGroup, by_entry, fold, groups, name, ran_ms, step_ms
from fathom.report.screen import LEAST

WIDE = 90  # columns from which bars are long
ROOMY = 72  # narrower tables have neither bars nor rates
RATES = 36  # columns for percent, then runs, TFLOP/s and GB/s, or the meaning of idle time
RUNS = 15  # columns for percent and runs, without rates
CEILING = 11  # column of the share of the ceiling, if ceilings are known
COMPLETE = 0.995  # share of busy time that counts as all of it
OVERHEAD, SHORTER = "profiling overhead", "shorter than clean steps"
UNEVEN = 0.02  # of the clean step: the median of profiled steps differs more from their mean
LOUD = 0.05  # of the clean step: larger overheads are highlighted
INFERRED = "≈"
LEGEND = (
    f"{INFERRED} inferred: profiled time minus its share of the profiling overhead; if clean steps are "
    "longer, the unattributed rest"
)
PROFILED = "profiled {noun}s only: no clean {noun} was recorded"
AS_PROFILED = "profiled {noun}s, as --profiled asks"
MEASURE = "These ceilings are from the datasheet; measure that machine with `fathom machine measure`."
MARK, NAMED = "!", 3
WHY_ABOVE = (
    "Its data came from a cache, its op received one tensor as two arguments, or the ceiling was measured "
    "too low: measure again on an idle machine (fathom machine measure)."
)
_ROOF = 63  # columns right of the name, in the roofline
_BOUND = 18


@dataclass(frozen=True)
class Columns:
    """Widths of the table's columns, and the decimals of its milliseconds."""

    name: int
    ms: int
    bar: int
    digits: int
    ceiling: int
    flops: tuple[str, float] = units.flops_unit(0.0)
    rates: bool = True

    @classmethod
    def of(cls, width: int, device: Device) -> Columns:
        total_ms = max(device.total_ms or 0.0, step_ms(device))
        digits = units.decimals(total_ms)
        ms = max(len(f"{total_ms:.{digits}f}"), 6) + 2
        rates = width >= ROOMY
        bars = (10 if width >= WIDE else 6) * rates
        ceiling = CEILING if device.at_ceiling_ms is not None else 0
        flops = units.flops_unit(max((entry.flops_per_s or 0.0 for entry in device.ledger), default=0.0))
        name = max(width - ms - bars - ceiling - (RATES if rates else RUNS), LEAST)
        return cls(name, ms, bars, digits, ceiling, flops, rates)


def stacked(device: Device, width: int) -> list[Text]:
    """Return a bar for the whole step, and its legend."""
    parts = groups(device)
    line, legend, total = Text(), Text(), step_ms(device)
    shares = units.apportion([group.ms for group in parts], width)
    for group, count in zip(parts, shares, strict=True):
        line.append(group.kind.glyph * count, group.kind.colour)
        percent = units.share(group.ms, total)
        legend.append(f"{group.kind.glyph} ", group.kind.colour)
        legend.append(f"{group.kind.title or group.kind.name} {percent} %   ")
    return [line, legend] if parts else []


def rows(
    device: Device,
    width: int,
    top: int | None,
    noun: str = "step",
    by_launch: bool = False,
    note: str = PROFILED,
) -> Iterator[Text]:
    """Yield the table: groups with their largest entries, the clean step, the profiled step.

    Kernels with the same name share a row, unless `by_launch`. `note` says why there is no clean step.
    """
    total = step_ms(device)
    columns = Columns.of(width, device)
    yield _header(columns, noun)
    for group in groups(device, by_launch):
        for label, ms, tail, style, inferred in _lines(group, columns, total, top):
            mark = INFERRED if inferred else ""
            name = units.shorten(label, columns.name - 1)
            line = Text(f"{name:<{columns.name}}{_ms(columns, ms, mark)}", style)
            line.append(f"{units.share(ms, total):>7}  ")
            line.append(units.bar(ms / total if total else 0.0, columns.bar), group.kind.colour)
            yield line.append(tail)
    clean = device.observer_ms is not None
    for entry in device.ledger if clean else ():
        if entry.ms < 0:
            name, share = f"{entry.entry} {entry.detail}", units.signed_share(entry.ms, total)
            yield Text(f"{name:<{columns.name}}{_ms(columns, entry.ms)}{share:>7}", "dim")
    figures = f"{_ms(columns, total)}{units.share(total, total):>7}"
    label, style = ("clean step", "bold green") if clean else (f"{noun}, as profiled", "bold")
    yield Text(f"{label:<{columns.name}}{figures}", style)
    yield from _profiled(columns, device) if clean else [Text(note.format(noun=noun), "dim")]
    yield from _mean(columns, device, width)
    yield from _speed_of_light(columns, device, total)
    if clean and any(entry.inferred for entry in device.ledger):
        yield from (Text(line, "dim") for line in textwrap.wrap(LEGEND, width, subsequent_indent="  "))
    yield from _above(device, width)


def _above(device: Device, width: int) -> Iterator[Text]:
    """Yield a note on families whose rates exceed their ceiling; the table marks them."""
    above = [entry for entry in device.ledger if entry.problem]
    if not above:
        return
    named = [f"{units.shorten(name(entry), 40)} at {entry.problem}" for entry in above[:NAMED]]
    more = [f"{len(above) - NAMED} more"] if len(above) > NAMED else []
    text = f"{MARK} above its ceiling: {'; '.join(named + more)}. {WHY_ABOVE}"
    yield from (Text(line, "yellow") for line in textwrap.wrap(text, width, subsequent_indent="  "))


def as_profiled(device: Device) -> Device:
    """Return a copy of the device with only the ledger of its profiled steps."""
    return replace(device, ledger=device.profiled_ledger, mean_ledger=[], observer_ms=None)


def _lines(
    group: LedgerGroup, columns: Columns, total: float, top: int | None
) -> Iterator[tuple[str, float, str, str, bool]]:
    """Yield (label, milliseconds, text right of the bar, style, whether the time is inferred) per line."""
    inferred = any(entry.inferred for entry in group.entries)
    yield group.kind.title or group.kind.name, group.ms, _work(columns, group.entries), "bold", inferred
    shown, rest = fold(group, total, top)
    for entry in shown:
        yield "  " + name(entry), entry.ms, _tail(columns, entry), "", entry.inferred
    if rest:
        label = f"  {len(rest)} {'other ' if shown else ''}{group.kind.members}"
        inferred = any(entry.inferred for entry in rest)
        yield label, sum(entry.ms for entry in rest), _work(columns, rest), "dim", inferred


def _profiled(columns: Columns, device: Device) -> Iterator[Text]:
    """Yield the usual profiled step on one line, with its difference from the clean step.

    Both are medians. The ledger's rows are means, to which rare long steps contribute.
    """
    clean = step_ms(device)
    added = (device.total_ms or 0.0) - clean if device.added_ms is None else device.added_ms
    why = OVERHEAD if added >= 0 else SHORTER
    percent = 100 * added / clean if clean else 0.0
    change = (f"{percent:+.1f}" if abs(percent) < 1000 else f"{percent:+.0f}") if clean else ""
    uneven = device.added_ms is not None and abs(added + clean - (device.total_ms or 0.0)) > UNEVEN * clean
    label = "median profiled step" if uneven else "profiled step"
    line = f"{label:<{columns.name}}{_ms(columns, clean + added)}{change:>7}  {'':<{columns.bar}}"
    yield Text(f"{line}  {why}", "yellow" if abs(added) > LOUD * clean else "dim")


def _mean(columns: Columns, device: Device, width: int) -> Iterator[Text]:
    """If steps are uneven, yield the mean clean step, and the rows that long steps lengthen most."""
    if not device.mean_ledger:
        return
    usual, mean = (by_entry(rows) for rows in (device.ledger, device.mean_ledger))
    more = {entry: ms - usual.get(entry, 0.0) for entry, ms in mean.items()}
    most = sorted((entry for entry in more if more[entry] > 0), key=lambda entry: -more[entry])[:2]
    total = sum(mean.values())
    line = f"{'mean step':<{columns.name}}{_ms(columns, total)}{'':>7}  {'':<{columns.bar}}"
    rare = [f"{cause_of(entry) or entry} {more[entry]:+.{columns.digits}f}" for entry in most]
    if len(line) + 2 + len(", ".join(rare)) > width:
        rare = rare[:1]
    yield Text(f"{line}  {', '.join(rare)}".rstrip(), "dim")


def _speed_of_light(columns: Columns, device: Device, total: float) -> Iterator[Text]:
    """Yield the step's speed of light: its time if all work ran at the ceilings."""
    if device.at_ceiling_ms is None:
        return
    need, share = device.at_ceiling_ms, units.share(device.at_ceiling_ms, total)
    line = f"{'at ceiling':<{columns.name}}{_ms(columns, need)}{share:>7}  {'':<{columns.bar}}"
    line += f"  {speed_of_light(device)}"
    yield Text(line, "cyan")
    if device.ceilings == DATASHEET:
        yield Text(MEASURE, "dim")


def speed_of_light(device: Device) -> str:
    """Return the device's time at its ceilings, with the share of the work that was modelled."""
    known = device.at_ceiling_known or 0.0
    text = "launches at best" if device.at_ceiling_bound == "launches" else "speed of light"
    text = f"datasheet {text}" if device.ceilings == DATASHEET else text
    return text if known >= COMPLETE else f"{text} ({100 * known:.0f} % modelled)"


def _header(columns: Columns, noun: str) -> Text:
    ceiling = "ceiling %" if columns.ceiling else ""
    rates = f"{columns.flops[0]:>9}{'GB/s':>8}" if columns.rates else ""
    tail = f"{'runs':>6}{rates}{ceiling:>{columns.ceiling}}"
    title = f"where a {noun} goes"
    line = f"{title:<{columns.name}}{'ms':>{columns.ms}}{'%':>7}  {'':<{columns.bar}}{tail}"
    return Text(line, "dim underline")


def _ms(columns: Columns, ms: float, mark: str = "") -> str:
    return f"{mark}{ms:.{columns.digits}f}".rjust(columns.ms)


def _tail(columns: Columns, entry: LedgerRow) -> str:
    """Return the text right of the bar: the meaning of idle time, or rates for work."""
    meaning = meaning_of(entry.entry)
    if meaning:
        return f"  {meaning}" if columns.rates else ""
    return _work(columns, [entry], entry.flops_per_s, entry.bytes_per_s, MARK if entry.problem else "")


def _work(
    columns: Columns,
    entries: list[LedgerRow],
    flops_per_s: float | None = None,
    bytes_per_s: float | None = None,
    mark: str = "",
) -> str:
    """Return runs, rates and share of the ceiling as text, with `mark` before the last column."""
    counts = [entry.count for entry in entries if entry.count is not None]
    runs = _runs(sum(counts) if counts else None)
    share = f"{mark + _of_ceiling(entries):>{columns.ceiling}}" if columns.ceiling else ""
    moved = ("" if columns.ceiling else mark) + units.rate(bytes_per_s, 1e9)
    rates = f"{units.rate(flops_per_s, columns.flops[1]):>9}{moved:>8}" if columns.rates else ""
    return f"{runs:>6}{rates}{share}".rstrip()


def _of_ceiling(entries: list[LedgerRow]) -> str:
    """Return the entries' combined share of their ceilings; empty if too many ceilings are unknown.

    Collectives have none here: that of the links depends on the size, see the table of collectives.
    """
    if all(entry.entry in COLLECTIVES for entry in entries):
        return ""
    known = [entry for entry in entries if entry.at_ceiling_ms is not None and not entry.is_too_short]
    ms, needed = sum(map(ran_ms, known)), sum(entry.at_ceiling_ms or 0.0 for entry in known)
    return units.share(needed, ms) if needed and ms >= COMPLETE * sum(map(ran_ms, entries)) else ""


def _runs(count: float | None) -> str:
    if count is None:
        return ""
    return f"{count:.0f}" if count >= 100 or count == round(count) else f"{count:.1f}"


def roofline(device: Device, width: int, top: int | None) -> Iterator[Text]:
    """Yield a table of families, sorted by the time lost against their ceiling, largest first."""
    bound = (entry for entry in device.ledger if entry.at_ceiling_ms is not None and entry.bound)
    known = [entry for entry in bound if not entry.is_too_short]
    if not known:
        return
    room = max(width - _ROOF, LEAST)
    unit = units.flops_unit(max(entry.flops_per_s or 0.0 for entry in known))
    head = f"{'ms':>8}{'FLOP/B':>8}{unit[0]:>9}{'GB/s':>8}  {'bound':<{_BOUND - 2}}{'%':>5}{'lost':>7}"
    yield Text(f"{'roofline':<{room}}{head}"[:width], "dim underline")
    ordered = sorted(known, key=lambda entry: -_lost(entry))
    for entry in ordered[:top]:
        yield _roof(entry, room, unit[1])
    if top is not None and len(ordered) > top:
        rest = sum(_lost(entry) for entry in ordered[top:])
        yield Text(f"{len(ordered) - top} other families lose {units.duration(rest)} together", "dim")


def _roof(entry: LedgerRow, room: int, flops: float) -> Text:
    need = entry.at_ceiling_ms or 0.0
    rates = f"{units.rate(entry.flops_per_s, flops):>9}{units.rate(entry.bytes_per_s, 1e9):>8}"
    share = 100 * need / ran_ms(entry)
    label = f"{units.shorten(name(entry), room - 1):<{room}}"
    bound = f"{units.shorten(entry.bound, _BOUND - 3):<{_BOUND - 2}}"
    intensity = units.significant(entry.flops / entry.bytes) if entry.flops and entry.bytes else ""
    line = Text(f"{label}{units.significant(entry.ms):>8}{intensity:>8}{rates}  {bound}")
    line.append(f"{share:>5.0f}", "green" if share >= 80 else "yellow" if share >= 40 else "red")
    return line.append(f"{units.significant(_lost(entry), 2):>7}")


def _lost(entry: LedgerRow) -> float:
    return entry.ms - (entry.at_ceiling_ms or 0.0)
