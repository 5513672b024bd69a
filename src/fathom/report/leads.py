"""Headroom: kernel families far below their ceilings beyond what findings claim, and where to look next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fathom.analysis.entries import Entry
from fathom.analysis.results import Lead, LedgerRow
from fathom.machine import DATASHEET
from fathom.report import units
from fathom.report.ledger import name
from fathom.report.screen import LEAST, folded, joined, paragraph, show

TITLE = "Headroom"
ROOM = 16  # columns that an op needs at least
FOLLOWS = "time saved at {aim:.0f} % of its {ceiling}, beyond the findings"
NONE = "No kernel family would save 1 % of the step by getting closer to its ceiling."
PART = 24  # characters of a name that are shown, because `fathom kernel` accepts parts of names
_WORD = re.compile(r"\w+")


def follows(leads: Sequence[Lead]) -> str:
    """Return the meaning of the leads' times."""
    return FOLLOWS.format(aim=100 * leads[0].aim, ceiling=_ceiling(leads[0]))


def section(leads: Sequence[Lead], width: int) -> Iterator[Text]:
    """Yield one line per lead, under the findings of a report."""
    if not leads:
        return
    gain = max(len(_saved(lead)) for lead in leads) + 2
    ceiling = max(len(_distance(lead)) for lead in leads) + 2
    wide = max(width - 2 - gain - ceiling, LEAST)
    family = max(wide // 2, min(wide, 36))
    yield Text.assemble((f"{TITLE}   ", "bold"), (follows(leads), "dim"))
    for lead in leads:
        line = Text.assemble("  ", (f"{_saved(lead):<{gain}}", "yellow"))
        line.append(f"{units.shorten(_name(lead), family - 1):<{family}}{_distance(lead):<{ceiling}}")
        if wide - family >= ROOM and _at(lead):
            line.append(units.shorten(_at(lead), wide - family), "dim")
        yield line
    yield Text(f"  {_next(leads[0])}", "dim")


def print_leads(leads: Sequence[Lead], console: Console | None = None) -> None:
    """Print every lead in full, or a sentence if there is none."""
    show(lambda width: every(leads, width) if leads else [Text(NONE)], console)


def every(leads: Sequence[Lead], width: int) -> Iterator[Text]:
    """Yield every lead in full, in lines of at most `width` cells."""
    for line in _every(leads, width) if leads else ():
        yield from folded(line, width)


def _every(leads: Sequence[Lead], width: int) -> Iterator[Text]:
    yield Text()
    yield Text.assemble((TITLE, "bold"), (f"   {follows(leads)}", "dim"))
    for lead in leads:
        yield Text()
        yield Text.assemble("  ", (_name(lead), "bold"))
        doubt = units.perhaps(lead.gain_ms, lead.low_ms, lead.high_ms)
        saved = units.within(lead.gain_ms, lead.low_ms, lead.high_ms)
        gain = f"{doubt}{saved} {100 * lead.gain_share:.0f} %"
        yield from _line("saves", f"{gain} of the step", width, "yellow")
        takes = f"{units.duration(lead.ms)}, {100 * lead.share:.1f} % of the step, {_distance(lead)}"
        yield from _line("takes", takes, width)
        yield from _line("where", _at(lead), width)
        for text in filter(None, (lead.hint, lead.technique and f"fathom lab run {lead.technique}")):
            yield from _line("try", text, width, "cyan")
    yield Text()
    yield Text(_next(leads[0]), "dim")


def _line(title: str, text: str, width: int, style: str = "") -> Iterator[Text]:
    return paragraph(f"    {title:<7}", text, width, style, label_style="dim")


def _saved(lead: Lead) -> str:
    doubt = units.perhaps(lead.gain_ms, lead.low_ms, lead.high_ms)
    return f"{doubt}{units.significant(lead.gain_ms, 2)} ms {100 * lead.gain_share:.0f} %"


def _distance(lead: Lead) -> str:
    return f"{100 * lead.of_ceiling:.0f} % of {lead.bound}"


def _ceiling(lead: Lead) -> str:
    return "datasheet peak" if lead.ceiling == DATASHEET else "ceiling"


def _name(lead: Lead) -> str:
    return name(LedgerRow(Entry.COMPUTE, lead.where.family or "", lead.ms))


def _at(lead: Lead) -> str:
    where = lead.where
    return joined(lead.op, where.region, where.module, where.source)


def _next(lead: Lead) -> str:
    word = _WORD.search(_name(lead))
    return f"look closer: fathom kernel SOUNDING {word[0][:PART] if word else ''}".rstrip()
