"""Classify kernel families and operations by their names."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from fathom.data import load


class Class(msgspec.Struct, frozen=True):
    """`bound` is memory or compute; "" if the name does not show it."""

    name: str
    bound: str


UNKNOWN = Class("", "")


@cache
def class_of(family: str) -> Class:
    """Return the first class whose pattern matches the family's name, ignoring case, else UNKNOWN."""
    return next((kind for pattern, kind in _classes() if pattern.search(family)), UNKNOWN)


@cache
def _classes() -> tuple[tuple[re.Pattern[str], Class], ...]:
    rows = load(__package__, "classes")
    return tuple(
        (re.compile(row["pattern"], re.IGNORECASE), Class(row["class"], row["bound"])) for row in rows
    )
