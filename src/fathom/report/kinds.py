"""What the kinds of a program's steps take, where it has several."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.text import Text

from fathom.analysis.results import StepKind
from fathom.report import units

_COLUMNS = {"n": 7, "clean": 11, "as profiled": 13, "of time": 10, "tokens/s": 12}
_USED = "  ledger"


def section(kinds: list[StepKind], width: int) -> Iterator[Text]:
    """A row a kind: how many, what one takes, and its share of the time; nothing for a single kind."""
    if len(kinds) < 2:
        return
    tokens = any(one.tokens_per_s for one in kinds)
    columns = {name: room for name, room in _COLUMNS.items() if tokens or name != "tokens/s"}
    name = width - sum(columns.values()) - len(_USED)
    head = "".join(f"{title:>{room}}" for title, room in columns.items())
    yield Text(f"{'kinds of steps':<{name}}{head}", "dim underline")
    for number, one in enumerate(kinds, 1):
        label = units.shorten(f"  {number} {one.name}", name - 1)
        figures = _figures(one)
        cells = "".join(f"{figures[title]:>{room}}" for title, room in columns.items())
        yield Text(f"{label:<{name}}{cells}{_USED if one.used else ''}", "bold" if one.used else "")
    for one in kinds:
        if one.note:
            yield Text(f"  clean {one.name} steps: {one.note}", "yellow")
    for one in kinds:
        yield from _verdict(one, width)


def _verdict(one: StepKind, width: int) -> Iterator[Text]:
    """What bounds another kind of steps, and what its first finding saves."""
    if one.verdict is None:
        return
    text = f"{one.name}: {one.verdict.headline}"
    if first := next((finding for finding in one.findings if finding.id == one.verdict.finding), None):
        saved = "" if first.gain_ms is None else f" saves {units.significant(first.gain_ms, 2)} ms."
        text += f" {first.title}:{saved}" if saved else f" {first.title}."
    lines = textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ")
    yield from map(Text, lines)


def _figures(one: StepKind) -> dict[str, str]:
    share = units.MISSING if one.share_of_time is None else f"{units.share(one.share_of_time, 1.0)} %"
    return {
        "n": f"{one.n:,}",
        "clean": units.duration(one.clean_ms),
        "as profiled": units.duration(one.timeline_ms),
        "of time": share,
        "tokens/s": units.scaled(one.tokens_per_s),
    }
