"""Families of the live program beside those of ncu: values, differences, and what explains them."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import yaml

from fathom.analysis.measures.formula import MissingError, evaluate, names

CYCLES = "sm__cycles_elapsed.avg"  # the denominator of ncu's shares, so that it takes no pass more
CLOCK = "gpc__cycles_elapsed.avg.per_second"
FAR, NEAR = 3.0, 1.5  # points: what is explained, and what an explanation may leave
ALIKE = 0.5  # points of the same work within which a counter agrees
HERE = Path(__file__).resolve().parent
Values = dict[str, dict[str, float]]  # family -> counter -> value


class Side(NamedTuple):
    """Measurements of one side: values, standard errors and launches or samples by family and counter."""

    values: Values
    errors: Values
    counts: Values
    took: dict[str, float]  # family -> mean duration of a launch, µs


@cache
def metrics() -> dict[str, dict[str, Any]]:
    """`ncu_agreement.yaml`."""
    return yaml.safe_load((HERE / "ncu_agreement.yaml").read_text())


@cache
def causes() -> dict[str, str]:
    """`ncu_causes.yaml`."""
    return yaml.safe_load((HERE / "ncu_causes.yaml").read_text())


def plain(counter: str) -> str:
    """The counter's own name; PM sampling puts unit and set in front: SM_A.TriageCompute.sm__…"""
    return counter.rpartition("TriageCompute.")[2]


def side(frame: pl.DataFrame, source: str, took: dict[str, float]) -> Side:
    """Counters of one source by family, mean over devices."""
    return Side(*(column(frame, source, name) for name in ("value", "error", "samples")), took)


def column(frame: pl.DataFrame, source: str, name: str) -> Values:
    """One column of a source's counters, by family and counter."""
    values: Values = defaultdict(dict)
    rows = frame.filter(pl.col("source") == source).drop_nulls(name)
    for family, counter, value in rows.group_by("family", "counter").agg(pl.col(name).mean()).iter_rows():
        values[family][plain(counter)] = value
    return dict(values)


def joined(sides: list[Side]) -> Side:
    """The measurements of several runs of ncu; if more than one has a value, that of the first."""
    total = Side({}, {}, {}, {})
    for item in reversed(sides):
        for all_, own in zip(total[:3], item[:3], strict=True):
            for family, counters in own.items():
                all_[family] = all_.get(family, {}) | counters
        total.took.update(item.took)
    return total


def matched(live: list[str], ncu: list[str]) -> tuple[dict[str, str], list[str]]:
    """(family of the program -> ncu's name of it, families that ncu has and the program not, or not alone).

    Demanglers spell namespaces and template arguments differently, ncu even from run to run. Among families
    of one base name and launch shape, pairs share more words with each other than with any other.
    """
    buckets: dict[tuple[str, str], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for place, families in enumerate((live, ncu)):
        for family in families:
            buckets[base_and_shape(family)][place].append(family)
    pairs = {
        family: other
        for (_, shape), (own, others) in buckets.items()
        for family in own
        if shape and (other := closest(family, others)) and closest(other, own) == family
    }
    return pairs, [family for family in ncu if family not in pairs.values()]


def closest(family: str, others: list[str]) -> str | None:
    """The one that shares most words with the family; None where two do."""
    ranked = sorted(((likeness(family, other), other) for other in others), reverse=True)
    if not ranked or (len(ranked) > 1 and ranked[0][0] == ranked[1][0]):
        return None
    return ranked[0][1]


def likeness(text: str, other: str) -> float:
    """Shared words of both over all words, namespaces left out."""
    mine, theirs = (set(re.findall(r"\w+(?!\w*::)", name)) for name in (text, other))
    return len(mine & theirs) / len(mine | theirs)


def base_and_shape(family: str) -> tuple[str, str]:
    """`a::gemm<float> 2x1x1·128x1x1` is (gemm, 2x1x1·128x1x1); no shape is an empty one."""
    front, _, shape = family.rpartition(" ")
    name = (front if "·" in shape else family).partition("<")[0]
    return name.rpartition("::")[2], shape if "·" in shape else ""


class Measured(NamedTuple):
    """The first expression that could be had: value, standard error, and fewest samples or launches."""

    value: float
    error: float
    count: int


def first(expressions: list[str], family: str, of: Side) -> Measured | None:
    """The value of one side by the first expression that can be computed."""
    errors = of.errors.get(family, {})
    known = {name: (value, errors.get(name, 0.0)) for name, value in of.values[family].items()}
    for expression in expressions:
        try:
            value, error = evaluate(expression, known)
        except MissingError:
            continue
        count = min((of.counts.get(family, {}).get(name, 0.0) for name in names(expression)), default=0.0)
        return Measured(value, error, int(count))
    return None


def compare(program: str, live: Side, ncu: Side) -> list[dict[str, Any]]:
    """A row for each family and metric that both have."""
    pairs, _ = matched(sorted(live.values), sorted(ncu.values))
    result = (
        (name, pair(metric, family, theirs, live, ncu))
        for family, theirs in sorted(pairs.items())
        if family in live.took
        for name, metric in metrics().items()
    )
    rows = [{"program": program, "metric": name} | row for name, row in result if row]
    return [beside(row, rows) for row in rows]


def beside(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row, explained by its counter where another one agrees in the same samples and launches."""
    other = metrics()[row["metric"]].get("beside")
    if not other or row.get("explained") != []:
        return row
    same = [r for r in rows if r["family"] == row["family"] and r["metric"] == other and "same_work" in r]
    agrees = all(abs(r["same_work"]) <= ALIKE for r in same)
    return row | {"explained": [causes()["counter"].strip().format(other=other)] if same and agrees else []}


def pair(metric: dict[str, Any], family: str, theirs: str, live: Side, ncu: Side) -> dict[str, Any] | None:
    """Both values of one metric, their difference, and what is known of why."""
    mine, other = first(metric["live"], family, live), first(metric["ncu"], theirs, ncu)
    if mine is None or other is None:
        return None
    row = {"family": family, "ncu_family": theirs, "us": round(live.took[family], 2)}
    row |= {"live": mine.value, "ncu": other.value, "difference": mine.value - other.value}
    row |= {"live_error": mine.error, "samples": mine.count}
    row |= {"ncu_error": other.error, "launches": other.count}  # no error where a single launch was profiled
    row |= same_work(metric, row, live.values[family], ncu.values[theirs], ncu.took.get(theirs))
    return row | ({"explained": explained(row)} if abs(row["difference"]) > FAR else {})


def same_work(
    metric: dict[str, Any],
    row: dict[str, Any],
    live: dict[str, float],
    ncu: dict[str, float],
    us: float | None,
) -> dict[str, Any]:
    """The difference once what ncu counted is put to the time and the cycles of the live kernel."""
    if not us:
        return {}
    result: dict[str, Any] = {"ncu_us": round(us, 2)}
    ratio = us / row["us"]
    if CLOCK in live and CYCLES in ncu:
        result |= {"clock": live[CLOCK] / 1e9, "ncu_clock": ncu[CYCLES] / us / 1e3}
        ratio *= result["ncu_clock"] / result["clock"] if metric.get("clock") else 1.0
    return result if metric.get("ratio") else result | {"same_work": row["live"] - row["ncu"] * ratio}


def explained(row: dict[str, Any]) -> list[str]:
    """The causes of a point of the difference or more, in words; nothing where more than NEAR is left."""
    gap = abs(row["difference"])
    sign = 1 if row["difference"] > 0 else -1
    points = {"launches": 2 * row["ncu_error"], "samples": 2 * row["live_error"]}
    if "same_work" in row:
        points["length"] = sign * row["ncu"] * (row["ncu_us"] / row["us"] - 1)
        points["clock"] = sign * (row["difference"] - row["same_work"]) - points["length"]
    if gap - sum(max(point, 0.0) for point in points.values()) > NEAR:
        return []
    facts = row | {
        "unsure": 2 * row["live_error"],
        "ncu_unsure": 2 * row["ncu_error"],
        "longer": row.get("ncu_us", 0.0) - row["us"],
    }
    said = [(cause, words) for cause, words in causes().items() if points.get(cause, 0.0) >= 1]
    return [words.strip().format(**facts) for _, words in said]
