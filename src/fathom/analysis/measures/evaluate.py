"""Derived measures of one kernel family: the catalogue in `rows/*.yaml`, and their values from counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import filterfalse
from typing import Any

import msgspec

from fathom.analysis.folding.kinds import bare, base
from fathom.analysis.measures.formula import NOT_SAMPLED, MissingError, evaluate, names
from fathom.analysis.measures.results import Measure
from fathom.data import load

Values = dict[str, tuple[float, float]]
SOURCES = ("PM sampling", "static", "timeline", "PC sampling", "ncu")
FILES = ("pipes", "issue", "occupancy", "memory", "shared", "stalls", "mix", "links", "front", "launch")


class KnownValues:
    """Values of one family by name: counters of each source, and facts, which all formulas may use."""

    def __init__(self, rows: Iterable[Mapping[str, Any]], facts: Mapping[str, float]) -> None:
        self.facts: Values = {name: (value, 0.0) for name, value in facts.items()}
        self.values: dict[str, Values] = {source: {} for source in SOURCES}
        self.samples: dict[str, int] = {}
        for row in rows:
            self._add(row)
        self._usable = {source: self.facts | values for source, values in self.values.items()}

    def _add(self, row: Mapping[str, Any]) -> None:
        pool = self.facts if row["source"] == "static" else self.values.get(row["source"])
        if pool is None or row["value"] is None:
            return
        value = (float(row["value"]), float(row["error"] or 0.0))
        pool[bare(row["counter"])] = value
        pool.setdefault(base(row["counter"]), value)
        self.samples[base(row["counter"])] = int(row["samples"] or 0)

    def of(self, source: str) -> Values:
        """Return the (value, error) pairs by name that formulas of that source may use."""
        return self._usable.get(source, self.facts)

    def counted(self, formula: str) -> int:
        """Return the samples of the formula's least sampled counter; 0 if it has no sampled counter."""
        return min((n for name in names(formula) if (n := self.samples.get(base(name)))), default=0)


def measures_of(known: KnownValues) -> tuple[list[Measure], dict[str, str]]:
    """Return the measures of the catalogue that have a value, and the reasons for the others, by name."""
    measures: list[Measure] = []
    available = tuple((source, frozenset(known.of(source))) for source in ("", *SOURCES))
    possible, lacking_all = _plan(available)
    missing = dict(lacking_all)
    for row, lacking in possible:
        measure = _first(row, known, lacking)
        if isinstance(measure, Measure):
            measures.append(measure)
        else:
            missing[row.name] = measure
    return measures, missing


@lru_cache(64)
def _plan(
    available: tuple[tuple[str, frozenset[str]], ...],
) -> tuple[list[tuple[Definition, list[str]]], dict[str, str]]:
    """Return the catalogue's rows, and for each of their sources the first missing name ("" if complete).

    Rows that lack a name in every source are returned separately, as a map from name to reason. `available`
    has the known names by source ("" for any other source). Most families of a recording share them, hence
    the cache.
    """
    known, possible, missing = dict(available), [], {}
    for row in catalogue():
        lacking = [_lacking(source, known.get(source.source, known[""])) for source in row.sources]
        if all(lacking):
            missing[row.name] = next((NOT_SAMPLED.format(name) for name in lacking), "")
        else:
            possible.append((row, lacking))
    return possible, missing


def _lacking(source: Source, available: frozenset[str]) -> str:
    return next(filterfalse(available.__contains__, names(source.formula)), "")


def _first(row: Definition, known: KnownValues, lacking: list[str]) -> Measure | str:
    """Return the measure from the first source that has a value, or the reason why none has."""
    why = ""
    for source, name in zip(row.sources, lacking, strict=True):
        if name:
            why = why or NOT_SAMPLED.format(name)
            continue
        try:
            value, error = evaluate(source.formula, known.of(source.source))
        except MissingError as missing:
            why = why or str(missing)
            continue
        return _measure(row, source, value, error, known.counted(source.formula))
    return why


def _measure(row: Definition, source: Source, value: float, error: float, samples: int) -> Measure:
    least, most = row.healthy
    advice = row.low if least is not None and value + error < least else ""
    advice = row.high if most is not None and value - error > most else advice
    return Measure(
        row.name, row.title, row.group, value, row.unit, error, samples, source.source, row.meaning,
        row.resource, advice, source.note,
    )  # fmt: skip


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
    meaning: str
    sources: list[Source]
    unit: str = "%"
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


def _each(row: dict[str, object]) -> Iterator[dict[str, object]]:
    """Yield the row once per key of `each`, if it has any: {} becomes the key, {words} its value."""
    each = row.pop("each", None)
    if not isinstance(each, dict):
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
