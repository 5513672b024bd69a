"""Counters folded from the live program against Nsight Compute, family by family.

    ncu $(python benchmarks/ncu_agreement.py options) --profile-from-start off -o gpt \\
        python benchmarks/profiled_steps.py 6 1 examples/train_gpt.py --steps 8
    ncu $(python benchmarks/ncu_agreement.py options --replayed) --profile-from-start off -o gpt-hits …
    python benchmarks/ncu_agreement.py compare gpt gpt.fathom gpt.ncu-rep gpt-hits.ncu-rep --out OUT/gpt.json
    python benchmarks/ncu_agreement.py summary OUT/*.json

`compare` pairs families by name and launch shape, and writes a table of all pairs; `summary` joins tables and
writes results/ncu_agreement.json: median and 95th percentile of the absolute differences, in points, of
kernels of 20 µs and more, and of 5 to 20 µs apart. A kernel takes another time under ncu, where it runs
alone: "for the same work" are the differences once ncu's share of its own time is put to the live kernel's.
What is compared is told in ncu_agreement.yaml.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml

from fathom.analysis.measures.formula import names, value_of
from fathom.sounding import Store, import_ncu, open_store

LENGTH = "gpu__time_duration.sum"
HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "ncu_agreement.json"
CLASSES = {"20 µs and more": (20.0, float("inf")), "5 to 20 µs": (5.0, 20.0)}
MEDIAN, HIGH = 1.0, 4.0  # bars in points; a metric may have a median of its own
Values = dict[str, dict[str, float]]  # family -> counter -> value


@cache
def metrics() -> dict[str, dict[str, Any]]:
    """`ncu_agreement.yaml`."""
    return yaml.safe_load((HERE / "ncu_agreement.yaml").read_text())


def plain(counter: str) -> str:
    """The counter's own name; PM sampling puts unit and set in front: SM_A.TriageCompute.sm__…"""
    return counter.rpartition("TriageCompute.")[2]


def values_of(frame: pl.DataFrame, source: str) -> Values:
    """Counters of one source by family, mean over devices."""
    found: Values = defaultdict(dict)
    rows = frame.filter(pl.col("source") == source).drop_nulls("value")
    for family, counter, value in rows.group_by("family", "counter").agg(pl.col("value").mean()).iter_rows():
        found[family][plain(counter)] = value
    return dict(found)


def live_counters(store: Store) -> pl.DataFrame:
    """What the samples of a sounding fold to; for one that holds counters already, these."""
    stored = store.table("counters").collect()
    if len(stored):
        return stored
    from fathom.analysis.folding import counters_of

    return pl.concat([counters_of(store, rank).frame for rank in store.ranks])


def lengths(store: Store) -> dict[str, float]:
    """Median duration of each family in the live program, in µs; never ncu's."""
    from fathom.analysis.device import detail

    took = (pl.col("end_ns") - pl.col("start_ns")).median() / 1e3
    return dict(store.table("kernels").group_by(detail()).agg(took).collect().iter_rows())


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


def likeness(one: str, other: str) -> float:
    """Shared words of both over all words, namespaces left out."""
    mine, theirs = (set(re.findall(r"\w+(?!\w*::)", name)) for name in (one, other))
    return len(mine & theirs) / len(mine | theirs)


def base_and_shape(family: str) -> tuple[str, str]:
    """`a::gemm<float> 2x1x1·128x1x1` is (gemm, 2x1x1·128x1x1); no shape is an empty one."""
    front, _, shape = family.rpartition(" ")
    name = (front if "·" in shape else family).partition("<")[0]
    return name.rpartition("::")[2], shape if "·" in shape else ""


def first(expressions: list[str], counters: dict[str, float]) -> float | None:
    """The value of the first expression that can be had."""
    found = (value_of(expression, counters) for expression in expressions)
    return next((value for value in found if value is not None), None)


def compare(
    program: str, live: Values, ncu: Values, took: dict[str, float], ncu_took: dict[str, float]
) -> list[dict[str, Any]]:
    """A row for each family and metric that both have."""
    pairs, _ = matched(sorted(live), sorted(ncu))
    rows = []
    for family, theirs in sorted(pairs.items()):
        for name, metric in metrics().items():
            ours, other = first(metric["live"], live[family]), first(metric["ncu"], ncu[theirs])
            if ours is None or other is None or took.get(family) is None:
                continue
            row = {"program": program, "family": family, "ncu_family": theirs, "us": round(took[family], 2)}
            row |= {"metric": name, "live": ours, "ncu": other, "difference": ours - other}
            if theirs in ncu_took:
                row["ncu_us"] = round(ncu_took[theirs], 2)
                if not metric.get("ratio"):  # a share of ncu's own time, put to the time of the live program
                    row["same_work"] = ours - other * ncu_took[theirs] / took[family]
            rows.append(row)
    return rows


def summarised(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By class of duration and metric: pairs, median and 95th percentile, and whether the bar is met."""
    found = []
    for name, (low, high) in CLASSES.items():
        for metric, told in metrics().items():
            own = [abs(r["difference"]) for r in rows_of(rows, metric, low, high)]
            row: dict[str, Any] = {"kernels": name, "metric": metric, "pairs": len(own)}
            if own:
                median, p95 = float(np.median(own)), float(np.percentile(own, 95))
                met = median <= told.get("median", MEDIAN) and p95 <= HIGH
                row |= {"median": median, "p95": p95, "met": met if low >= 20 else None}
                work = [abs(r["same_work"]) for r in rows_of(rows, metric, low, high) if "same_work" in r]
                if work:
                    row |= {"same_work": [float(np.percentile(work, share)) for share in (50, 95)]}
            found.append(row)
    return found


def rows_of(rows: list[dict[str, Any]], metric: str, low: float, high: float) -> list[dict[str, Any]]:
    """Those of one metric, of kernels of so many µs."""
    return [row for row in rows if row["metric"] == metric and low <= row["us"] < high]


def table(summary: list[dict[str, Any]]) -> str:
    """What a person reads."""
    lines = [f"{'kernels':<16}{'metric':<20}{'pairs':>6}{'median':>9}{'p95':>8}  {'for the same work':>18}"]
    for row in summary:
        numbers = f"{row['median']:>9.2f}{row['p95']:>8.2f}" if row["pairs"] else "        –       –"
        work = "{:>9.2f}{:>9.2f}".format(*row["same_work"]) if "same_work" in row else " " * 18
        verdict = {True: "  met", False: "  NOT met", None: ""}[row.get("met")]
        lines.append(f"{row['kernels']:<16}{row['metric']:<20}{row['pairs']:>6}{numbers}  {work}{verdict}")
    return "\n".join(lines)


def ncu_options(replayed: bool) -> str:
    """Options for ncu that collect the counters of one run, with the program's own clocks and caches."""
    chosen = [metric for metric in metrics().values() if bool(metric.get("replayed")) == replayed]
    wanted = ",".join(sorted({LENGTH, *(c for metric in chosen for c in names(metric["ncu"][0]))}))
    how = "--replay-mode application " if replayed else ""
    return f"--clock-control none --cache-control none --target-processes all {how}--metrics {wanted}"


def do_compare(options: argparse.Namespace) -> None:
    live = open_store(options.live)
    with tempfile.TemporaryDirectory() as scratch:
        tables = [
            open_store(path) if path.is_dir() else import_ncu([path], Path(scratch) / f"{number}.fathom")
            for number, path in enumerate(options.ncu)
        ]
        theirs = values_of(pl.concat([one.table("counters").collect() for one in tables]), "ncu")
        ncu_took = lengths(tables[0])
    ours = values_of(live_counters(live), "PM sampling")
    rows = compare(options.program, ours, theirs, lengths(live), ncu_took)
    if not rows:
        sys.exit(f"{options.live} and {options.ncu} have no kernel and metric in common")
    _, strange = matched(sorted(ours), sorted(theirs))
    print(table(summarised(rows)))
    print(f"families that ncu alone has, or that are not told apart: {len(strange)} of {len(theirs)}")
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


def do_summary(options: argparse.Namespace) -> None:
    rows = [row for path in options.tables for row in json.loads(path.read_text())]
    summary = summarised(rows)
    notes = {name: metric["note"] for name, metric in metrics().items() if "note" in metric}
    print(table(summary))
    whole = {"summary": summary, "differences": notes, "pairs": rows}
    options.out.write_text(json.dumps(whole, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    show = commands.add_parser("options", help="options for ncu")
    show.add_argument("--replayed", action="store_true", help="those that take more than one pass")
    show.set_defaults(do=lambda options: print(ncu_options(options.replayed)))
    one = commands.add_parser("compare", help="one program: its sounding and ncu's result of it")
    one.add_argument("program")
    one.add_argument("live", type=Path)
    one.add_argument("ncu", type=Path, nargs="+")
    one.add_argument("--out", type=Path, required=True)
    one.set_defaults(do=do_compare)
    all_ = commands.add_parser("summary", help="all programs")
    all_.add_argument("tables", type=Path, nargs="+")
    all_.add_argument("--out", type=Path, default=RESULT)
    all_.set_defaults(do=do_summary)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
