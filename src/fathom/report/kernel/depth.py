"""One kernel family in depth: where it sits under which ceiling, what limits it, and why."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from fathom.analysis.measures.results import Level, Portrait, Reason
from fathom.report import units
from fathom.report.bars import bar
from fathom.report.kernel.words import FAIR, NOT_KNOWN, colour, error, measure_of, paragraph, runs, value
from fathom.units import US_PER_MS

_REASONS, _COUNTERS = 4, 16
_LEVELS, _TABLE, _RAW = 61, 63, 49  # cells of columns with a fixed width
_LAUNCH_SOURCES = ("static", "timeline")


def depth(one: Portrait, width: int, *, every: bool = False, counters: bool = False) -> Iterator[Text]:
    """The lines about one family; `every` measure, and all `counters` as they were folded."""
    yield from (Text(line, "bold") for line in textwrap.wrap(one.family, width))
    yield Text(_times(one), "dim")
    yield Text()
    yield from _verdict(one, width)
    yield Text()
    yield from paragraph("launch", _launch(one), width)
    yield from paragraph("occupancy", _occupancy(one), width)
    yield from paragraph("work", _work(one), width)
    yield from _roofline(one.roofline, width)
    yield from _measures(one, width, every)
    if counters:
        yield from _raw(one.counters, width)
    if one.abstained:
        yield Text()
    for abstained in one.abstained:
        yield from paragraph(NOT_KNOWN, f"{abstained.what}: {abstained.why}", width, "yellow")


def _times(one: Portrait) -> str:
    times = {label: units.duration(us / US_PER_MS) for label, us in one.time_us.items()}
    launches = f"{runs(one)} launches of {times['mean']}" if one.launches else f"launches of {times['mean']}"
    step = f"{units.duration(one.ms)} a step ({units.share(one.share, 1.0)} %)"
    return f"{one.device} · {step} · {launches}, most {times['p10']} to {times['p90']}"


def _verdict(one: Portrait, width: int) -> Iterator[Text]:
    """What limits the family, in a word, then why, in sentences."""
    words = one.bound
    nearest = max(one.roofline, key=lambda level: level.used, default=None)
    if nearest is not None and one.bound == nearest.name:
        words += f", {100 * nearest.used:.0f} % of its ceiling"
    elif one.used is not None and one.used >= FAIR:
        words += f", {100 * one.used:.0f} % of what there is"
    elif nearest is not None:
        words += f"; the nearest ceiling is {nearest.name}, {100 * nearest.used:.0f} % of it used"
    yield from paragraph("limited by", words, width, f"bold {colour(one.used)}")
    for reason in one.reasons[:_REASONS]:
        yield from paragraph("", _sentence(one, reason), width)


def _sentence(one: Portrait, reason: Reason) -> str:
    measure = measure_of(one, reason)
    if measure is None or not measure.advice or measure.advice != reason.text:
        return f"· {reason.text}"
    return f"· {measure.title} {value(measure)}: {reason.text}"


def _launch(one: Portrait) -> str:
    launch = one.launch
    told = {
        "grid {}": launch["grid"],
        "block {}" + f" ({launch['threads']} threads)": launch["block"],
        "{} registers a thread": launch["registers"],
        "{} shared memory a block": units.memory(launch["shared_bytes"]) if launch["shared_bytes"] else None,
        "{} local memory a thread": units.memory(launch["local_bytes"]) if launch["local_bytes"] else None,
        "on {} streams": launch["streams"] if (launch["streams"] or 0) > 1 else None,
    }
    return " · ".join(words.format(what) for words, what in told.items() if what is not None)


def _occupancy(one: Portrait) -> str:
    fit = one.occupancy
    if fit is None:
        return ""
    blocks = "1 block" if fit["blocks"] == 1 else f"{fit['blocks']} blocks"
    text = f"{100 * fit['share']:.0f} % fits: {blocks}, {fit['warps']} warps a multiprocessor"
    if fit["share"] < 1:
        text += f"; more is stopped by {' and '.join(fit['limiters'])}"
        needed = [_at(what, most) for what, most in fit["next_at"].items() if what in fit["limiters"]]
        text += f" (one block more with {' and '.join(needed)} at most)" if needed else ""
    waves = next((measure.value for measure in one.measures if measure.name == "waves"), None)
    return text + ("" if waves is None else f" · {units.significant(waves)} waves")


def _at(what: str, most: int) -> str:
    return f"{most} registers" if what == "registers" else f"{units.memory(most)} shared memory"


def _work(one: Portrait) -> str:
    """What one launch has to do, how fast it does it, and what it would take at the ceiling."""
    work, parts = one.work, []
    if work["bytes"] is not None:
        amount, rate = units.scaled(work["bytes_a_launch"], "B"), units.scaled(work["bytes_per_s"], "B/s")
        parts.append(f"has to move {amount}, does so at {rate}")
    if work["flops"]:
        amount, rate = (
            units.scaled(work["flops_a_launch"], "FLOP"),
            units.scaled(work["flops_per_s"], "FLOP/s"),
        )
        parts.append(f"has to do {amount}, does so at {rate}")
    if work["at_ceiling_ms"] is not None:
        parts.append(f"at the ceiling ({work['bound']}) {units.duration(work['at_ceiling_ms'])} a step")
    return " · ".join(parts)


def _roofline(levels: Sequence[Level], width: int) -> Iterator[Text]:
    """Every ceiling over the family, how near it is, and from what that is known."""
    if not levels:
        return
    yield Text()
    room = width - _LEVELS
    head = f"{'roofline':<16}{'of the ceiling':<{room + 10}}{'reached':>13}{'ceiling':>13}{'FLOP/B':>9}"
    yield Text(head, "dim underline")
    for level in levels:
        line = Text(f"{units.shorten(level.name, 15):<16}")
        line.append(bar(level.used, room), colour(level.used)).append(f"{100 * level.used:>8.1f} %")
        rate, ceiling = units.scaled(level.rate, level.unit), units.scaled(level.ceiling, level.unit)
        intensity = units.significant(level.intensity) if level.intensity else ""
        yield line.append(f"{rate:>13}{ceiling:>13}{intensity:>9}")
    notes = {level.name: (level.basis, level.why and f"no {level.unit}: {level.why}") for level in levels}
    for note in dict.fromkeys(note for pair in notes.values() for note in pair if note):
        names = ", ".join(name for name, pair in notes.items() if note in pair)
        yield from (Text(line, "dim") for line in textwrap.wrap(f"{names}: {note}", width))


def _measures(one: Portrait, width: int, every: bool) -> Iterator[Text]:
    """Measures that counters tell, those that matter first; those of the launch stand above."""
    sampled = [measure for measure in one.measures if measure.source not in _LAUNCH_SOURCES]
    if not sampled:
        return
    first = {reason.measure: -reason.weight for reason in one.reasons}
    ordered = sorted(sampled, key=lambda m: (first.get(m.name, 1.0), -m.value if m.resource else 0.0))
    ordered = ordered if every else ordered[:_COUNTERS]
    yield Text()
    if one.counted_as != one.family:
        yield from paragraph("together", f"counters are those of {one.counted_as}", width, "yellow")
    yield Text(f"{'counters':<32}{'value':>12}{'±':>9}{'samples':>8}  what it is", "dim underline")
    for measure in ordered:
        line = Text(f"{units.shorten(measure.title, 31):<32}{value(measure):>12}")
        line.append(f"{error(measure):>9}{measure.samples or '':>8}  ")
        yield line.append(units.shorten(measure.meaning, max(width - _TABLE, 1)), "dim")
    if len(ordered) < len(sampled):
        yield Text(f"{len(sampled) - len(ordered)} more with --all; all as folded with --counters", "dim")


def _raw(rows: Sequence[dict[str, Any]], width: int) -> Iterator[Text]:
    """Rows of the table `counters`."""
    if not rows:
        return
    yield Text()
    room = max(width - _RAW, 30)
    yield Text(f"{'counter':<{room}}{'value':>14}{'±':>10}{'samples':>9}  {'source':<12}", "dim underline")
    for row in rows:
        unit = row["unit"] if len(row["unit"] or "") < 3 else ""
        amount, error = units.significant(row["value"], 4), units.significant(row["error"] or 0.0, 2)
        line = (
            f"{units.shorten(row['counter'], room - 1):<{room}}{f'{amount} {unit}'.rstrip():>14}{error:>10}"
        )
        yield Text(f"{line}{row['samples']:>9}  {row['source']:<12}")
