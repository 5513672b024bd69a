"""Look up names by a pattern."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase

_EXPRESSION = re.compile(r"[\\^$.|+()\[\]{}]")  # characters that make a pattern a regular expression


def meant(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that match `pattern`, by the first of these rules that matches any.

    The rules are: the whole name; a part of it; a shell pattern with * and ?; a regular expression. All but
    the first ignore case. An invalid regular expression matches nothing.
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
