"""One kernel family in depth: its share of each ceiling, its limit, and the reasons."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.text import Text

from fathom.analysis.measures import NOT_KNOWN, CounterRow, Level, Measure, Portrait, Reason
from fathom.analysis.results import LedgerRow
from fathom.report import ledger, units
from fathom.report.screen import LEAST, joined, paragraph
from fathom.units import US_PER_MS

_REASONS, _COUNTERS = 4, 16
_LEVELS, _TABLE, _RAW = 61, 63, 49  # cells of columns with a fixed width
_LAUNCH_SOURCES = ("static", "timeline")


def depth(portrait: Portrait, width: int, *, every: bool = False, counters: bool = False) -> Iterator[Text]:
    """Yield the lines about one family; `every`: all measures, `counters`: also all folded counters."""
    yield from (Text(line, "bold") for line in textwrap.wrap(portrait.family, width))
    yield Text(_times(portrait), "dim")
    yield Text()
    yield from _verdict(portrait, width)
    yield Text()
    yield from labelled("launch", _launch(portrait), width)
    yield from labelled("occupancy", _occupancy(portrait), width)
    yield from labelled("work", _work(portrait), width)
    yield from _roofline(portrait.roofline, width)
    yield from _measures(portrait, width, every)
    if counters:
        yield from _raw(portrait.counters, width)
    if portrait.abstained:
        yield Text()
    for abstained in portrait.abstained:
        yield from labelled(NOT_KNOWN, f"{abstained.what}: {abstained.why}", width, "yellow")


def _times(portrait: Portrait) -> str:
    times = {label: units.duration(us / US_PER_MS) for label, us in portrait.time_us.items()}
    count = f"{runs(portrait)} " if portrait.launches else ""
    launches = f"{count}launches of {times['mean']}"
    step = f"{units.duration(portrait.ms)} per step ({units.share(portrait.share, 1.0)} %)"
    return f"{portrait.label} · {step} · {launches}, most {times['p10']} to {times['p90']}"


def _verdict(portrait: Portrait, width: int) -> Iterator[Text]:
    """Yield the limit of the family in a few words, then the reasons in sentences."""
    words = portrait.bound
    nearest = max(portrait.roofline, key=lambda level: level.used, default=None)
    if nearest is not None and portrait.bound == nearest.name:
        words += f", {100 * nearest.used:.0f} % of its ceiling"
    elif portrait.used is not None and portrait.used >= FAIR:
        words += f", {100 * portrait.used:.0f} % of its capacity"
    elif nearest is not None:
        words += f"; nearest ceiling {nearest.name}, {100 * nearest.used:.0f} % used"
    yield from labelled("limited by", words, width, f"bold {colour(portrait.used)}")
    for reason in portrait.reasons[:_REASONS]:
        yield from labelled("", _sentence(portrait, reason), width)


def _sentence(portrait: Portrait, reason: Reason) -> str:
    measure = measure_of(portrait, reason)
    if measure is None or not measure.advice or measure.advice != reason.text:
        return f"· {reason.text}"
    return f"· {measure.title} {value(measure)}: {reason.text}"


def _launch(portrait: Portrait) -> str:
    launch = portrait.launch
    facts = {
        "grid {}": launch.grid,
        "block {}" + f" ({launch.threads} threads)": launch.block,
        "{} registers per thread": launch.registers,
        "{} shared memory per block": _bytes(launch.shared_bytes),
        "{} local memory per thread": _bytes(launch.local_bytes),
        "on {} streams": launch.streams if (launch.streams or 0) > 1 else None,
    }
    return " · ".join(words.format(what) for words, what in facts.items() if what is not None)


def _bytes(count: int | None) -> str | None:
    return units.memory(count) if count else None


def _occupancy(portrait: Portrait) -> str:
    fit = portrait.occupancy
    if fit is None:
        return ""
    blocks = "1 block" if fit.blocks == 1 else f"{fit.blocks} blocks"
    text = f"{100 * fit.share:.0f} % fits: {blocks}, {fit.warps} warps per multiprocessor"
    if fit.share < 1:
        text += f"; limited by {' and '.join(fit.limiters)}"
        needed = [_at(what, most) for what, most in fit.next_at.items() if what in fit.limiters]
        text += f" (one more block with at most {' and '.join(needed)})" if needed else ""
    waves = next((measure.value for measure in portrait.measures if measure.name == "waves"), None)
    return text + ("" if waves is None else f" · {units.significant(waves)} waves")


def _at(what: str, most: int) -> str:
    return f"{most} registers" if what == "registers" else f"{units.memory(most)} shared memory"


def _work(portrait: Portrait) -> str:
    """Yield the work of one launch, its rate, and its time at the ceiling."""
    work, parts = portrait.work, []
    if work.bytes is not None:
        amount, rate = units.scaled(work.bytes_a_launch, "B"), units.scaled(work.bytes_per_s, "B/s")
        share = " (of its op's bytes, by time)" if work.divided else ""
        parts.append(f"must move {amount}{share}, runs at {rate}")
    if work.flops:
        amount, rate = (
            units.scaled(work.flops_a_launch, "FLOP"),
            units.scaled(work.flops_per_s, "FLOP/s"),
        )
        parts.append(f"must do {amount}, runs at {rate}")
    if work.at_ceiling_ms is not None:
        parts.append(f"at the ceiling ({work.bound}) {units.duration(work.at_ceiling_ms)} per step")
    return joined(*parts)


def _roofline(levels: Sequence[Level], width: int) -> Iterator[Text]:
    """Yield each ceiling of the family, the share of it that is used, and the source of that share."""
    if not levels:
        return
    yield Text()
    room = max(width - _LEVELS, 10)
    head = f"{'roofline':<16}{'of the ceiling':<{room + 10}}{'reached':>13}{'ceiling':>13}{'FLOP/B':>9}"
    yield Text(head, "dim underline")
    for level in levels:
        line = Text(f"{units.shorten(level.name, 15):<16}")
        line.append(units.bar(level.used, room), colour(level.used)).append(f"{100 * level.used:>8.1f} %")
        rate, ceiling = units.scaled(level.rate, level.unit), units.scaled(level.ceiling, level.unit)
        intensity = units.significant(level.intensity) if level.intensity else ""
        yield line.append(f"{rate:>13}{ceiling:>13}{intensity:>9}")
    notes = {level.name: (level.basis, level.why and f"no {level.unit}: {level.why}") for level in levels}
    for note in dict.fromkeys(note for pair in notes.values() for note in pair if note):
        names = ", ".join(name for name, pair in notes.items() if note in pair)
        yield from (Text(line, "dim") for line in textwrap.wrap(f"{names}: {note}", width))


def _measures(portrait: Portrait, width: int, every: bool) -> Iterator[Text]:
    """Yield measures from counters, those that explain a reason first; those of the launch are above."""
    sampled = [measure for measure in portrait.measures if measure.source not in _LAUNCH_SOURCES]
    if not sampled:
        return
    first = {reason.measure: -reason.weight for reason in portrait.reasons}
    ordered = sorted(sampled, key=lambda m: (first.get(m.name, 1.0), -m.value if m.resource else 0.0))
    ordered = ordered if every else ordered[:_COUNTERS]
    yield Text()
    if portrait.counted_as != portrait.family:
        yield from labelled("shared", f"counters are those of {portrait.counted_as}", width, "yellow")
    yield Text(f"{'counters':<32}{'value':>12}{'±':>9}{'samples':>8}  meaning", "dim underline")
    for measure in ordered:
        line = Text(f"{units.shorten(measure.title, 31):<32}{value(measure):>12}")
        line.append(f"{error(measure):>9}{measure.samples or '':>8}  ")
        yield line.append(units.shorten(measure.meaning, max(width - _TABLE, LEAST)), "dim")
    if len(ordered) < len(sampled):
        yield Text(f"{len(sampled) - len(ordered)} more with --all; all as folded with --counters", "dim")


def _raw(rows: Sequence[CounterRow], width: int) -> Iterator[Text]:
    """Yield the rows of the table `counters`."""
    if not rows:
        return
    yield Text()
    room = max(width - _RAW, 30)
    yield Text(f"{'counter':<{room}}{'value':>14}{'±':>10}{'samples':>9}  {'source':<12}", "dim underline")
    for row in rows:
        unit = row["unit"] if len(row["unit"] or "") < 3 else ""
        amount, error = units.significant(row["value"], 4), units.significant(row["error"] or 0.0, 2)
        line = f"{units.shorten(row['counter'], room - 1):<{room}}{f'{amount} {unit}'.rstrip():>14}"
        yield Text(f"{line}{error:>10}{row['samples']:>9}  {row['source']:<12}")


# Names, numbers and paragraphs that the list of families shows too
LABEL = 12  # cells of a paragraph's label
GOOD, FAIR = 0.8, 0.5  # of a ceiling
_SCALED = ("B", "B/s", "Hz", "/s")


def name(portrait: Portrait) -> str:
    """Return the family's name as shown in a line."""
    return ledger.name(LedgerRow("", portrait.family, portrait.ms))


def colour(used: float | None) -> str:
    """Return the style for a share of a ceiling."""
    if used is None:
        return "dim"
    return "green" if used >= GOOD else "yellow" if used >= FAIR else "red"


def labelled(label: str, text: str, width: int, style: str = "") -> Iterator[Text]:
    """Yield `text` wrapped to the right of its label; nothing for an empty text."""
    return paragraph(f"{label:<{LABEL}}", text, width, style)


def measure_of(portrait: Portrait, reason: Reason) -> Measure | None:
    """Return the measure behind a reason."""
    return next((measure for measure in portrait.measures if measure.name == reason.measure), None)


def number(value: float, unit: str) -> str:
    """Return a measure's value as text, without a unit that is printed separately."""
    if unit == "s":
        return units.duration(value * 1e3)
    if unit in _SCALED:
        return units.scaled(value, unit)
    return f"{value:.1f}" if unit == "%" else units.significant(value)


def value(measure: Measure) -> str:
    """Return a measure's value and unit."""
    unit = "" if measure.unit in (*_SCALED, "s") else {"x": "×"}.get(measure.unit, measure.unit)
    return f"{number(measure.value, measure.unit)} {unit}".rstrip()


def error(measure: Measure) -> str:
    """Return a measure's standard error, in the unit of its value."""
    if measure.unit in (*_SCALED, "s"):
        return number(measure.error, measure.unit)
    if measure.error >= 0.001:
        return units.significant(measure.error, 2)
    return "<0.001" if measure.error else "0"


def runs(portrait: Portrait) -> str:
    """Return the launches per step."""
    if portrait.launches is None:
        return ""
    return f"{portrait.launches:.0f}" if portrait.launches >= 10 else units.significant(portrait.launches, 2)
