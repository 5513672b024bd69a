"""Lookup of names by pattern."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase

_EXPRESSION = re.compile(r"[\\^$.|+()\[\]{}]")  # characters of a regular expression


def meant(pattern: str, names: Iterable[str]) -> list[str]:
    """Names that match the pattern by the first of these rules that finds any: the whole name; a part of
    it in any case; a shell pattern with * and ?; a valid regular expression.
    """
    known, word = list(names), pattern.lower()
    return (
        [name for name in known if name == pattern]
        or [name for name in known if word in name.lower()]
        or [name for name in known if fnmatchcase(name.lower(), word)]
        or _matching(pattern, known)
    )


def _matching(pattern: str, names: list[str]) -> list[str]:
    if not _EXPRESSION.search(pattern):
        return []
    with warnings.catch_warnings(), suppress(re.error, OverflowError, RecursionError):
        warnings.simplefilter("ignore")
        expression = re.compile(pattern, re.IGNORECASE)
        return [name for name in names if expression.search(name)]
    return []
