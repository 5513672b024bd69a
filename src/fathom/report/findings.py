"""Findings as a person reads them: a few lines each in the report, in full by themselves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fathom.analysis.results import Abstained, Claimed, Finding, Lead, Shown
from fathom.diagnosis.kinds import kinds
from fathom.report import leads, money, units
from fathom.report.screen import cells, console_or_default, put
from fathom.report.sections import FINDING

GAIN = 26  # columns
SHOWN = 5  # in the report; `fathom findings` shows all
NO_STEP = "Nothing was checked: findings are about the steps of a program, and none was recorded."
NONE = "Nothing found that costs 1 % of the step or more"
ALONE = "Each gain is predicted for its cause alone: together they save less than their sum."
HOST = "The rest of that time is then spent waiting, mostly for the host: its launches set the pace."
LEAST = 12  # columns for words beside a figure
LESS = 0.7  # of the device's own rows: a gain below that is worth a word


def none(unseen: int, stepped: bool = True) -> str:
    """What to say without findings, where `unseen` checks lacked data."""
    every = len(kinds())
    if not stepped:
        return NO_STEP
    if unseen >= every:
        return f"Nothing was checked: all {every} checks lacked data."
    return f"{NONE} ({every - unseen} of {every} checks ran)." if unseen else f"{NONE}."


def unseen_of(abstained: Iterable[Abstained]) -> int:
    """Kinds of findings that were not looked for."""
    return len({one.what for one in abstained if one.what.startswith(FINDING)})


def section(found: Sequence[Finding], unseen: int, width: int, stepped: bool = True) -> Iterator[Text]:
    """The largest findings: gain and title, where, one line of evidence."""
    yield Text("findings", "bold")
    if not found:
        said = textwrap.wrap(none(unseen, stepped), width - 2)
        yield from (Text(f"  {line}", "dim") for line in said)
    for one in found[:SHOWN]:
        yield Text.assemble("  ", (f"{_gain(one):<{GAIN}}  ", "green"), (one.title, "bold"))
        yield Text(f"    {_first_line(one, width - 4)}", "dim")
    if len(found) > SHOWN:
        yield Text(f"  and {len(found) - SHOWN} more: fathom findings SOUNDING", "dim")


def _first_line(one: Finding, width: int) -> str:
    """What shows it, shortened so that there is room for what explains it; where it lies if there is more."""
    explain = f"fathom explain {one.id}"
    saved = f"{money.a_day(one)} · " if one.saves_per_day else ""
    room = width - len(explain) - len(saved) - 3
    shown = _shown(one.evidence[0], room) if one.evidence else units.shorten(_place(one), room)
    line = f"{saved}{shown} · {explain}"
    place = _place(one)
    return f"{line} · {place}" if place and len(line) + len(place) + 3 <= width else line


def print_findings(
    found: Sequence[Finding],
    unseen: int = 0,
    console: Console | None = None,
    far: Sequence[Lead] = (),
    stepped: bool = True,
) -> None:
    """Every finding in full; `unseen` kinds could not be looked for; `far` are far from their ceilings."""
    console = console_or_default(console)
    width = cells(console)
    put(_every(found, width) if found else [Text(none(unseen, stepped))], console)
    put(leads.every(far, width), console)


def _every(found: Sequence[Finding], width: int) -> Iterator[Text]:
    for one in found:
        yield from _full(one, width)
    if sum(one.gain_ms is not None for one in found) > 1:
        yield Text()
        yield Text(ALONE, "dim")


def _full(one: Finding, width: int) -> Iterator[Text]:
    yield Text()
    yield Text.assemble((one.title, "bold"), (f"   {one.id}", "dim"))
    yield Text.assemble(("  saves  ", "dim"), (_gain(one), "green"), (_sure(one), "dim"))
    yield from _part("", [money.a_day(one)] if one.saves_per_day else [], width)
    yield from _part("", [one.unpredicted] if one.unpredicted else [], width)
    yield from _part("where", [place] if (place := _place(one)) else [], width)
    yield from _part("shown", [_shown(line) for line in one.evidence], width)
    yield from _part("costs", [_claimed(claim) for claim in one.claims[:SHOWN]], width)
    yield from _part("", [HOST] if _limited(one) else [], width)
    yield from _part("why", [one.mechanism], width)
    yield from _part("mend", one.remedy.rstrip().splitlines(), width, "cyan")
    yield from _part("try", [f"fathom lab run {one.technique}"] if one.technique else [], width, "cyan")
    yield from _part("check", [one.check] if one.check else [], width)


def _limited(one: Finding) -> bool:
    """Whether much of the device's time that goes is not gained."""
    taken = sum(claim.ms for claim in one.claims if claim.entry == "compute")
    return one.gain_ms is not None and one.gain_ms < LESS * taken


def _part(title: str, lines: Sequence[str], width: int, style: str = "") -> Iterator[Text]:
    for number, line in enumerate(lines):
        wrapped = [line] if style else textwrap.wrap(line, width - 9) or [""]
        for place, text in enumerate(wrapped):
            yield Text.assemble((f"  {title if number == place == 0 else '':<7}", "dim"), (text, style))


def _gain(one: Finding) -> str:
    """`3.2 ms a step (2.1–4.3)`, `costs no time`."""
    if one.gain_ms is None:
        return "not predicted" if one.claims or one.unpredicted else "costs no time"
    low_ms = one.gain_ms if one.low_ms is None else one.low_ms
    high_ms = one.gain_ms if one.high_ms is None else one.high_ms
    low, high = units.significant(low_ms, 2), units.significant(high_ms, 2)
    share = f"{100 * one.share:.0f} %" if one.share is not None else ""
    doubt = units.perhaps(one.gain_ms, low_ms, high_ms)
    return f"{doubt}{units.significant(one.gain_ms, 2)} ms ({low}–{high}) {share}".rstrip()


def _sure(one: Finding) -> str:
    share = " of the step" if one.gain_ms is not None and one.share is not None else ""
    sure = f"{share} · {100 * one.confidence:.0f} % sure of the cause"
    if not one.observed:
        return sure
    before = one.predicted_ms
    return sure + (
        " · observed" if before is None else f" · observed; predicted {units.significant(before, 2)} ms"
    )


def _place(one: Finding) -> str:
    where = one.where
    known = [part for part in (where.source, where.module, where.region, where.family) if part]
    return " · ".join(known[:2])


def _shown(line: Shown, width: int | None = None) -> str:
    """Words and figure; where `width` is too narrow the words are cut: they say little without the figure."""
    figure = f": {units.significant(line.value)} {line.unit}".rstrip()
    words = line.text if width is None else units.shorten(line.text, max(width - len(figure), LEAST))
    return words + figure


def _claimed(claim: Claimed) -> str:
    name = f"{claim.entry} {claim.detail}".rstrip()
    return f"{units.duration(claim.ms)} of {units.shorten(name, 70)}"
