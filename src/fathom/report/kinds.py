"""What the kinds of a program's steps take, where it has several."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from fathom.analysis.results import StepKind
from fathom.report import units

_ROOM = (7, 11, 13, 10, 14)


def section(kinds: list[StepKind], width: int) -> Iterator[Text]:
    """A row a kind: how many, what one takes, and its share of the time; nothing for a single kind."""
    if len(kinds) < 2:
        return
    name = width - sum(_ROOM) - 10
    tokens = any(one.tokens_per_s for one in kinds)
    head = _cells(("n", "clean", "as profiled", "of time", "tokens/s" if tokens else ""))
    yield Text(f"{'kinds of steps':<{name}}{head}".rstrip(), "dim underline")
    for number, one in enumerate(kinds, 1):
        label = units.shorten(f"  {number} {one.name}", name - 1)
        line = f"{label:<{name}}{_cells(_figures(one))}"
        yield Text(f"{line}  {'ledger' if one.used else ''}".rstrip(), "bold" if one.used else "")
    for one in kinds:
        if one.note:
            yield Text(f"  clean {one.name} steps: {one.note}", "yellow")


def _figures(one: StepKind) -> tuple[str, ...]:
    share = units.MISSING if one.share_of_time is None else f"{units.share(one.share_of_time, 1.0)} %"
    rate = units.scaled(one.tokens_per_s) if one.tokens_per_s else ""
    return f"{one.n:,}", units.duration(one.clean_ms), units.duration(one.timeline_ms), share, rate


def _cells(texts: tuple[str, ...]) -> str:
    return "".join(f"{text:>{room}}" for text, room in zip(texts, _ROOM, strict=True))
