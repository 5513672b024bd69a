"""The catalogue of derived measures, from `rows/*.yaml`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from fathom.data import load

SOURCES = ("PM sampling", "static", "timeline", "PC sampling", "ncu")
FILES = ("pipes", "issue", "occupancy", "memory", "shared", "stalls", "mix", "links", "front", "launch")


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A formula over the counters of one source; `note` is a caveat about it."""

    source: str
    formula: str
    note: str = ""


class Definition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measure.

    `sources` are in order of preference: the first one with all its counters is used. `healthy` is [least,
    most], either of which may be null; `low` and `high` explain values outside it. A `resource` is a share,
    in per cent, of something that can be exhausted, so a high value is a limit.
    """

    name: str
    title: str
    group: str
    unit: str
    meaning: str
    sources: list[Source]
    healthy: tuple[float | None, float | None] = (None, None)
    low: str = ""
    high: str = ""
    resource: bool = False


@cache
def catalogue() -> list[Definition]:
    """Return every measure, in the order of the report."""
    rows: list[Definition] = []
    for group in FILES:
        for row in load(__package__, f"rows/{group}"):
            rows += (msgspec.convert({"group": group} | fields, Definition) for fields in _each(row))
    return rows


def _each(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the row once per key of `each`, if it has any: {} becomes the key, {words} its value."""
    each = row.pop("each", None)
    if each is None:
        yield row
        return
    for key, words in each.items():
        yield _filled(row, key, words)


def _filled(part: Any, key: str, words: str) -> Any:
    if isinstance(part, dict):
        return {name: _filled(value, key, words) for name, value in part.items()}
    if isinstance(part, list):
        return [_filled(value, key, words) for value in part]
    return part.replace("{}", key).replace("{words}", words) if isinstance(part, str) else part
