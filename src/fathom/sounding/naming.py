"""Look up names by a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

_EXPRESSION = re.compile(r"[\\^$.|+()\[\]{}]")  # characters that make a pattern a regular expression


def meant(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that match `pattern`, by the first of these rules that matches any.

    The rules are: the whole name; a part of it; a shell pattern with * and ?; a regular expression. All but
    the first ignore case. An invalid regular expression matches nothing.

    Expressions are those of Rust's regex, which takes time in proportion to the name for every pattern, and
    refuses one whose automaton is large. It has neither lookaround nor backreferences.
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
    import polars as pl

    known = pl.Series(names, dtype=pl.String)
    matches = known.str.contains(f"(?i){pattern}", strict=False)
    return known.filter(matches.fill_null(False)).to_list()
