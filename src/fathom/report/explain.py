"""Kinds of findings as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fathom.diagnosis.kinds import Kind
from fathom.report.page import part, wrapped
from fathom.report.screen import cells, console_or_default, put


def print_kind(kind: Kind, console: Console | None = None) -> None:
    """Print one kind in full."""
    console = console_or_default(console)
    put(_page(kind, cells(console)), console)


def print_kinds(kinds: Sequence[Kind], console: Console | None = None) -> None:
    """Print ids and titles, one per line, group by group."""
    console = console_or_default(console)
    wide = max(len(kind.id) for kind in kinds) + 2
    put((Text.assemble((f"{kind.id:<{wide}}", "bold"), kind.title) for kind in kinds), console)


def _page(kind: Kind, width: int) -> Iterator[Text]:
    yield Text()
    yield Text.assemble((kind.title, "bold"), (f"   {kind.id}", "dim"))
    yield from part("mechanism", wrapped(kind.mechanism, width))
    yield from part("signs", wrapped(kind.shows, width))
    yield from part("remedy", kind.remedy.rstrip().splitlines(), "cyan")
    if kind.techniques:
        yield from part("try it here", [f"fathom lab run {name}" for name in kind.techniques], "cyan")
    else:
        yield from part("no technique", wrapped(kind.no_technique, width))
    if kind.trial:
        yield from part("measure the gain", [f"fathom run --what-if {kind.trial} -- COMMAND"], "cyan")
    yield from part("read more", kind.references, "dim")
    yield Text()
