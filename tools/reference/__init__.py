"""The pages of the documentation that are generated from the code, as Markdown by path."""

from __future__ import annotations

from collections.abc import Callable

from reference import (
    accuracy,
    ceilings,
    checks,
    commands,
    contributing,
    findings,
    measures,
    tables,
    techniques,
    tips,
)

Pages = dict[str, str]
_PARTS: tuple[Callable[[], Pages], ...] = (
    accuracy.pages,
    ceilings.pages,
    checks.pages,
    commands.pages,
    contributing.pages,
    findings.pages,
    measures.pages,
    tables.pages,
    techniques.pages,
    tips.pages,
)


def pages() -> Pages:
    """Return every generated page: its text by its path under `docs/`."""
    return {path: text for part in _PARTS for path, text in part().items()}
