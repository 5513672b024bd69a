"""Kernel families far from their ceilings: a distance beside the findings, and where to look next."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fathom.analysis.results import Entry, Lead
from fathom.report import units
from fathom.report.ledger import name
from fathom.report.screen import cells, console_or_default, put

TITLE = "Headroom"
ROOM = 16  # an op needs at least that much
FOLLOWS = "time saved if the kernel reached {aim:.0f} % of its ceiling (no cause identified)"
NONE = "No kernel family with a known ceiling would save 1 % of the step by coming closer to it."
PART = 24  # of a name: a part of it is found, too
_WORD = re.compile(r"\w+")


def section(found: Sequence[Lead], width: int) -> Iterator[Text]:
    """A line each, under the findings of a report."""
    if not found:
        return
    gain = max(len(_saved(one)) for one in found) + 2
    ceiling = max(len(_distance(one)) for one in found) + 2
    wide = width - 2 - gain - ceiling
    family = max(wide // 2, min(wide, 36))
    yield Text.assemble((f"{TITLE}   ", "bold"), (FOLLOWS.format(aim=100 * found[0].aim), "dim"))
    for one in found:
        line = Text.assemble("  ", (f"{_saved(one):<{gain}}", "yellow"))
        line.append(f"{units.shorten(_name(one), family - 1):<{family}}{_distance(one):<{ceiling}}")
        if wide - family >= ROOM and _at(one):
            line.append(units.shorten(_at(one), wide - family), "dim")
        yield line
    yield Text(f"  {_next(found[0])}", "dim")


def print_leads(found: Sequence[Lead], console: Console | None = None) -> None:
    """Each in full, or that there is none."""
    console = console_or_default(console)
    put(every(found, cells(console)) if found else [Text(NONE)], console)


def every(found: Sequence[Lead], width: int) -> Iterator[Text]:
    """Each in full, below the findings; each line at most `width` cells."""
    for line in _every(found, width) if found else ():
        line.truncate(width, overflow="ellipsis")
        yield line


def _every(found: Sequence[Lead], width: int) -> Iterator[Text]:
    yield Text()
    yield Text.assemble((TITLE, "bold"), (f"   {FOLLOWS.format(aim=100 * found[0].aim)}", "dim"))
    for one in found:
        yield Text()
        yield Text.assemble("  ", (_name(one), "bold"))
        bounds = f"{units.significant(one.low_ms, 2)}–{units.significant(one.high_ms, 2)}"
        doubt = units.perhaps(one.gain_ms, one.low_ms, one.high_ms)
        gain = f"{doubt}{units.significant(one.gain_ms, 2)} ms ({bounds}) {100 * one.gain_share:.0f} %"
        yield from _line("saves", f"{gain} of the step", width, "yellow")
        takes = f"{units.duration(one.ms)}, {100 * one.share:.1f} % of the step, {_distance(one)}"
        yield from _line("takes", takes, width)
        if _at(one):
            yield from _line("where", _at(one), width)
        for text in filter(None, (one.hint, one.technique and f"fathom lab run {one.technique}")):
            yield from _line("try", text, width, "cyan")
    yield Text()
    yield Text(_next(found[0]), "dim")


def _line(title: str, text: str, width: int, style: str = "") -> Iterator[Text]:
    for number, line in enumerate(textwrap.wrap(text, width - 11)):
        yield Text.assemble((f"    {'' if number else title:<7}", "dim"), (line, style))


def _saved(one: Lead) -> str:
    doubt = units.perhaps(one.gain_ms, one.low_ms, one.high_ms)
    return f"{doubt}{units.significant(one.gain_ms, 2)} ms {100 * one.gain_share:.0f} %"


def _distance(one: Lead) -> str:
    return f"{100 * one.of_ceiling:.0f} % of {one.bound}"


def _name(one: Lead) -> str:
    return name(Entry("compute", one.where.family or "", one.ms))


def _at(one: Lead) -> str:
    where = one.where
    return " · ".join(filter(None, (one.op, where.region, where.module, where.source)))


def _next(one: Lead) -> str:
    found = _WORD.search(_name(one))
    return f"look closer: fathom kernel (or dive) SOUNDING {found[0][:PART] if found else ''}".rstrip()
