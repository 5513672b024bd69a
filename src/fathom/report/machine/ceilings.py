"""Measured ceilings beside the datasheet's figures; copies between GPUs and collectives by size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from fathom.machine import Ceiling, Missing
from fathom.machine.datasheet import Sheet, beside, find, find_host
from fathom.machine.model import Machine, Setting
from fathom.report import units
from fathom.report.machine.words import labelled
from fathom.report.screen import grouped, reasons_of

GROUPS = (
    ("memory", ("hbm.", "l2.", "shared.")),
    ("copies", ("copy.",)),
    ("compute", ("matmul.", "vector.", "attention.")),
    ("latency", ("latency.", "pace.")),
    ("host", ("host.",)),
    ("disk", ("disk.",)),
    ("links", ("link.", "collective.")),
)
_NAME, _VALUE, _BAR = 30, 14, 10
_SERIES, _CELL = 26, 10  # columns of ceilings with several values
_SIZES = 7  # columns at most
FAR = 0.05  # relative difference from the first GPU above which another GPU is named


def value(number: float, unit: str) -> str:
    """Format a rate with an SI prefix, or a time in a suitable unit."""
    return units.duration(number * 1e3) if unit == "s" else units.scaled(number, unit.removeprefix("1"))


def lines(
    machine: Machine, ceilings: Sequence[Ceiling], missing: Sequence[Missing], cells: int
) -> Iterator[Text]:
    """Yield a table for the first GPU and the host, a line on other GPUs, and the missing ceilings."""
    measured = machine.get("measured_ns")
    when = f"  measured {units.date(measured)}" if isinstance(measured, int) else ""
    yield Text.assemble(("ceilings", "bold"), (when, "dim"))
    head = f"{'measured':>{_VALUE}}{'spread':>10}{'datasheet':>{_VALUE}}{'share':>8}"
    yield Text(" " * _NAME + head, "dim underline")
    first = min((c.device for c in ceilings if c.device is not None), default=None)
    sheets = {c.device: _sheet(machine, c.device) for c in ceilings}
    for title, starts in GROUPS:
        chosen = [c for c in ceilings if c.id.startswith(starts) and c.device in (first, None)]
        if chosen:
            yield Text(title, "bold")
            yield from (_row(ceiling, sheets[ceiling.device]) for ceiling in chosen)
    yield from _peers(ceilings)
    yield from _collectives(ceilings)
    yield from _doubts(ceilings, cells)
    yield from _sources(ceilings, sheets, cells)
    yield from _others(ceilings, first, cells)
    yield from labelled("missing", reasons_of((entry.why, entry.id) for entry in missing), cells, "dim")


def _doubts(ceilings: Sequence[Ceiling], cells: int) -> Iterator[Text]:
    """Yield reasons to doubt figures; figures with the same reason share a line."""
    reasons = grouped((flag, ceiling.id) for ceiling in ceilings for flag in ceiling.flags)
    for number, (why, names) in enumerate(reasons.items()):
        label = "" if number else "! doubts"
        yield from labelled(label, f"{', '.join(dict.fromkeys(names))}: {why}", cells, "yellow")


def _sources(
    ceilings: Sequence[Ceiling], sheets: dict[int | None, Sheet | None], cells: int
) -> Iterator[Text]:
    """Yield the sources of the published figures."""
    figures = [figure for c in ceilings if (figure := beside(c, sheets[c.device]))]
    yield from labelled("sources", " · ".join(dict.fromkeys(f["source"] for f in figures)), cells, "dim")


def _sheet(machine: Machine, device: int | None) -> Sheet | None:
    if device is None:
        return find_host(machine.get("host") or {})
    return next((find(gpu) for gpu in machine.get("gpus") or [] if gpu.get("index") == device), None)


def _row(ceiling: Ceiling, sheet: Sheet | None) -> Text:
    figure = beside(ceiling, sheet)
    line = Text(f"  {units.shorten(ceiling.id, _NAME - 3):<{_NAME - 2}}")
    line.append(f"{value(ceiling.value, ceiling.unit):>{_VALUE}}", "bold")
    line.append(f"{_spread(ceiling):>10}", "dim")
    if figure:
        line.append(f"{value(figure['value'], figure['unit']):>{_VALUE}}{100 * figure['fraction']:>6.0f} %  ")
        line.append(units.bar(figure["fraction"], _BAR), "green")
    if ceiling.flags:
        line.append("  !", "yellow")
    return line


def _spread(ceiling: Ceiling) -> str:
    """Return half the interquartile range in percent of the median."""
    if not ceiling.value or ceiling.samples < 2:
        return units.MISSING
    return f"±{50 * (ceiling.high - ceiling.low) / ceiling.value:.1f} %"


def _others(ceilings: Iterable[Ceiling], first: int | None, cells: int) -> Iterator[Text]:
    """Yield one sentence on the GPUs that have no table."""
    every = list(ceilings)
    main = {c.id: c.value for c in every if c.device == first}
    rest = [c for c in every if c.device not in (first, None) and main.get(c.id)]
    if not rest:
        return
    worst = max(rest, key=lambda c: abs(c.value / main[c.id] - 1))
    off = worst.value / main[worst.id] - 1
    count = len({c.device for c in rest})
    words = f"{count} more GPU{'s' if count > 1 else ''}: within {100 * abs(off):.1f} % of GPU {first}"
    if abs(off) > FAR:
        words += f"; farthest is {worst.id} on GPU {worst.device}, {value(worst.value, worst.unit)}"
    yield from labelled("", words, cells, "yellow" if abs(off) > FAR else "dim")


def _peers(ceilings: Sequence[Ceiling]) -> Iterator[Text]:
    """Yield a table of GB/s from each GPU (rows) to each other GPU, one direction at a time."""
    matrix = next((c.series for c in ceilings if c.id == "link.peer"), [])
    cells = {(row.get("from"), row.get("to")): row["value"] for row in matrix if not row.get("both_ways")}
    gpus = sorted({gpu for pair in cells for gpu in pair if isinstance(gpu, int)})
    if len(gpus) < 2:
        return
    head = "".join(f"{f'to GPU {gpu}':>{_CELL}}" for gpu in gpus)
    yield Text(f"{'peer copies, GB/s':<{_SERIES}}{head}", "dim underline")
    for gpu in gpus:
        row = "".join(f"{_gb(cells.get((gpu, other))):>{_CELL}}" for other in gpus)
        yield Text(f"{f'  from GPU {gpu}':<{_SERIES}}{row}")


def _collectives(ceilings: Sequence[Ceiling]) -> Iterator[Text]:
    """Yield the time and bus bandwidth of each collective at each size."""
    measured = [c for c in ceilings if c.id.startswith("collective.") and c.series]
    sizes = sorted({int(row["bytes"]) for c in measured for row in c.series})
    if not sizes:
        return
    shown = sizes if len(sizes) <= _SIZES else sizes[:: -(-len(sizes) // _SIZES)]
    head = "".join(f"{units.memory(size):>{_CELL}}" for size in shown)
    yield Text(f"{'collectives, GB/s on the bus':<{_SERIES}}{head[2:]}", "dim underline")
    for ceiling in measured:
        rows = {int(row["bytes"]): row for row in ceiling.series}
        name = ceiling.id.removeprefix("collective.").replace("_", " ")
        rates = (_gb(rows[size]["value"] if size in rows else None) for size in shown)
        yield Text(f"  {name:<{_SERIES - 2}}" + "".join(f"{rate:>{_CELL}}" for rate in rates))
        yield Text(f"{'':<{_SERIES}}" + "".join(f"{_time(rows.get(s)):>{_CELL}}" for s in shown), "dim")


def _gb(value: float | None) -> str:
    return "·" if value is None else units.significant(value / 1e9)


def _time(row: Setting | None) -> str:
    seconds = row.get("seconds") if row else None
    return units.duration(1e3 * seconds) if seconds else ""
