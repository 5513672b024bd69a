"""Kinds of steps: their number, time and rates, for programs that have several."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.text import Text

from fathom.analysis.results import StepKind
from fathom.report import units

_COLUMNS = {"n": 7, "clean": 11, "as profiled": 13, "of time": 10, "tokens/s": 12}
_USED = "  ledger"


def section(kinds: list[StepKind], width: int) -> Iterator[Text]:
    """One row per kind: number of steps, time per step, share of the time; nothing for a single kind."""
    if len(kinds) < 2:
        return
    tokens = any(kind.tokens_per_s for kind in kinds)
    columns = {name: room for name, room in _COLUMNS.items() if tokens or name != "tokens/s"}
    name = width - sum(columns.values()) - len(_USED)
    head = "".join(f"{title:>{room}}" for title, room in columns.items())
    yield Text(f"{'kinds of steps':<{name}}{head}", "dim underline")
    for number, kind in enumerate(kinds, 1):
        label = units.shorten(f"  {number} {kind.name}", name - 1)
        figures = _figures(kind)
        cells = "".join(f"{figures[title]:>{room}}" for title, room in columns.items())
        yield Text(f"{label:<{name}}{cells}{_USED if kind.used else ''}", "bold" if kind.used else "")
    for kind in kinds:
        if kind.note:
            yield Text(f"  clean {kind.name} steps: {kind.note}", "yellow")
    for kind in kinds:
        yield from _verdict(kind, width)


def _verdict(kind: StepKind, width: int) -> Iterator[Text]:
    """The verdict on another kind of steps, and the saving of its first finding."""
    if kind.verdict is None:
        return
    text = f"{kind.name}: {kind.verdict.headline}"
    if first := next((finding for finding in kind.findings if finding.id == kind.verdict.finding), None):
        saved = "" if first.gain_ms is None else f" saves {units.significant(first.gain_ms, 2)} ms."
        text += f" {first.title}:{saved}" if saved else f" {first.title}."
    lines = textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ")
    yield from map(Text, lines)


def _figures(kind: StepKind) -> dict[str, str]:
    share = units.MISSING if kind.share_of_time is None else f"{units.share(kind.share_of_time, 1.0)} %"
    return {
        "n": f"{kind.n:,}",
        "clean": units.duration(kind.clean_ms),
        "as profiled": units.duration(kind.timeline_ms),
        "of time": share,
        "tokens/s": units.scaled(kind.tokens_per_s),
    }
