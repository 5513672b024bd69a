"""What a kernel family or an operation does, by its name."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from fathom.data import load


class Class(msgspec.Struct, frozen=True):
    """`bound` is memory or compute; "" where the name says nothing."""

    name: str
    bound: str


UNKNOWN = Class("", "")


@cache
def class_of(family: str) -> Class:
    """The first class whose pattern fits the family's name, in any case of letters; UNKNOWN without one."""
    return next((found for pattern, found in _classes() if pattern.search(family)), UNKNOWN)


@cache
def _classes() -> tuple[tuple[re.Pattern[str], Class], ...]:
    rows = load(__package__, "classes")
    return tuple(
        (re.compile(row["pattern"], re.IGNORECASE), Class(row["class"], row["bound"])) for row in rows
    )
