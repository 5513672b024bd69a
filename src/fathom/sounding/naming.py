"""Which of the known names somebody means."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase


def meant(pattern: str, names: Iterable[str]) -> list[str]:
    """Those that the pattern names, by the first of these ways that finds any: the whole name; a part of it,
    in any case; a shell's pattern with * and ?; a regular expression, unless it is none."""
    known, word = list(names), pattern.lower()
    return (
        [name for name in known if name == pattern]
        or [name for name in known if word in name.lower()]
        or [name for name in known if fnmatchcase(name.lower(), word)]
        or _found(pattern, known)
    )


def _found(pattern: str, names: list[str]) -> list[str]:
    try:
        expression = re.compile(pattern, re.IGNORECASE)
    except re.error:
        return []
    return [name for name in names if expression.search(name)]
