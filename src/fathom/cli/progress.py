"""How far a long command has come: a status line on a terminal, lines now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fathom.cli.console import say

QUIET_S = 10.0  # between two lines where there is no terminal


@dataclass(frozen=True)
class Shown:
    """`progress` replaces the line before it, `tell` says what stays."""

    progress: Callable[[str], None]
    tell: Callable[[str], None]


@contextmanager
def shown(first: str) -> Iterator[Shown]:
    """On standard error, which stays as it was where it is closed."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Shown(_lines(), say)
        return
    with console.status(first) as status:
        yield Shown(
            status.update, lambda text: console.print(f"fathom: {text}", markup=False, highlight=False)
        )


def _lines() -> Callable[[str], None]:
    """Say what changed, at most every QUIET_S seconds, and nothing of what is over sooner."""
    last = time.monotonic()

    def progress(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= QUIET_S:
            last = time.monotonic()
            say(text)

    return progress
