"""Counters folded from the live program against Nsight Compute, family by family.

    ncu $(python benchmarks/counters/ncu_agreement.py options) --profile-from-start off -o gpt \\
        python benchmarks/counters/profiled_steps.py 6 1 examples/train_gpt.py --steps 8
    ncu $(python benchmarks/counters/ncu_agreement.py options --replayed) --profile-from-start off \\
        -o gpt-hits …
    python benchmarks/counters/ncu_agreement.py compare gpt gpt.fathom gpt.ncu-rep gpt-hits.ncu-rep \\
        --out OUT/gpt.json
    python benchmarks/counters/ncu_agreement.py summary OUT/*.json

`compare` pairs families by name and launch shape, and writes a table of all pairs; `summary` joins tables and
writes results/ncu_agreement.json: median and 95th percentile of the absolute differences, in points, of
kernels of 20 µs and more, and of 5 to 20 µs apart. A kernel takes another time and clock under ncu, where it
runs alone: "for the same work" are the differences once what ncu counted is put to the cycles of the live
kernel (its time, where ncu's cycles are not there). Bars are for the differences as they are.
ncu_agreement.yaml lists the comparisons, ncu_causes.yaml the explanations of large differences.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from counters_coverage import POINTS, SHARE
from ncu_pairs import CYCLES, FAR, compare, joined, matched, metrics, side

from fathom.analysis.measures.formula import names
from fathom.sounding import Store, import_ncu, open_store

LENGTH = "gpu__time_duration.sum"
RESULT = Path(__file__).resolve().parents[1] / "results" / "ncu_agreement.json"
CLASSES = {"20 µs and more": (20.0, float("inf")), "5 to 20 µs": (5.0, 20.0)}
MEDIAN, HIGH = 1.0, 4.0  # bars in points; a metric may have its own median


def live_counters(store: Store) -> pl.DataFrame:
    """The folded samples of a sounding; if it holds counters already, these."""
    stored = store.table("counters").collect()
    if len(stored):
        return stored
    from fathom.analysis.folding import counters_of

    return pl.concat([counters_of(store, rank).frame for rank in store.ranks])


def lengths(store: Store) -> dict[str, float]:
    """Mean duration of a launch of each family, in µs, where counters were sampled if they were."""
    from fathom.analysis.device import detail

    rows = store.table("kernels").collect()
    sampled = rows.filter(pl.col("phase") == "counters")
    took = (pl.col("end_ns") - pl.col("start_ns")).mean() / 1e3
    return dict((sampled if len(sampled) else rows).group_by(detail()).agg(took).iter_rows())


def summarised(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By class of duration and metric: pairs, median and 95th percentile, and whether the bar is met."""
    result = []
    for name, (low, high) in CLASSES.items():
        for metric, said in metrics().items():
            every = rows_of(rows, metric, low, high)
            own = [r for r in every if sure(r)]
            row: dict[str, Any] = {"kernels": name, "metric": metric, "pairs": len(own)}
            if own:
                median, p95 = spread(own, "difference")
                met = median <= said.get("median", MEDIAN) and p95 <= HIGH
                row |= {"median": median, "p95": p95, "met": met if low >= 20 else None}
                if work := [r for r in own if "same_work" in r]:
                    row |= {"same_work": spread(work, "same_work")}
                far = [r for r in own if "explained" in r]
                row |= {"far": len(far), "explained": sum(bool(r["explained"]) for r in far)}
            if len(own) < len(every):
                row |= {"unsure": len(every) - len(own), "with_unsure": spread(every, "difference")}
            result.append(row)
    return result


def spread(rows: list[dict[str, Any]], of: str) -> list[float]:
    """Median and 95th percentile of the sizes of a difference."""
    sizes = [abs(row[of]) for row in rows]
    return [float(np.percentile(sizes, share)) for share in (50, 95)]


def sure(row: dict[str, Any]) -> bool:
    """Whether the sounding itself calls its value known."""
    return bool(row.get("live_error", 0.0) <= max(POINTS, SHARE * abs(row.get("live", 0.0))))


def rows_of(rows: list[dict[str, Any]], metric: str, low: float, high: float) -> list[dict[str, Any]]:
    """Those of one metric, of kernels of so many µs."""
    return [row for row in rows if row["metric"] == metric and low <= row["us"] < high]


def table(summary: list[dict[str, Any]]) -> str:
    """The result as text."""
    lines = [
        f"{'kernels':<16}{'metric':<20}{'pairs':>6}{'median':>9}{'p95':>8}{'for the same work':>20}"
        f"  further than {FAR:.0f} (explained)"
    ]
    for row in summary:
        numbers = f"{row['median']:>9.2f}{row['p95']:>8.2f}" if row["pairs"] else f"{'–':>9}{'–':>8}"
        work = "{:>12.2f}{:>8.2f}".format(*row["same_work"]) if "same_work" in row else " " * 20
        far = f"{row['far']:>4} ({row['explained']})" if row.get("far") else " " * 8
        if row.get("unsure"):
            far += "; {} unsure, with them {:.2f} {:.2f}".format(row["unsure"], *row["with_unsure"])
        verdict = {True: "  met", False: "  NOT met", None: ""}[row.get("met")]
        lines.append(
            f"{row['kernels']:<16}{row['metric']:<20}{row['pairs']:>6}{numbers}{work}  {far}{verdict}"
        )
    return "\n".join(lines)


def reported(rows: list[dict[str, Any]]) -> str:
    """The rows that lie far apart, with their reasons."""
    far = [row for row in rows if "explained" in row and row["us"] >= 20]
    return "\n".join(
        f"{row['metric']}, {row['family']}: {row['live']:.1f} against {row['ncu']:.1f}; "
        + (
            "; ".join(row["explained"])
            or ("not explained" if sure(row) else "the sounding is not sure of it")
        )
        for row in far
    )


def ncu_options(replayed: bool, way: str | None = None) -> str:
    """Options for ncu that collect the counters of one run, with the program's own clocks and caches.

    `way`: counters that this machine reads in a single pass, instead of those that need a replay.
    """
    chosen = [metric for metric in metrics().values() if bool(metric.get("replayed")) == replayed]
    wanted = {LENGTH, CYCLES, *(c for metric in chosen for c in names(metric["ncu"][0]))}
    how = "--replay-mode application " if replayed and not way else ""
    listed = ",".join([LENGTH, CYCLES, way] if way else sorted(wanted))
    return f"--clock-control none --cache-control none --target-processes all {how}--metrics {listed}"


def do_options(options: argparse.Namespace) -> None:
    if options.ways:
        print("\n".join(way for metric in metrics().values() for way in metric.get("ways", [])))
    else:
        print(ncu_options(options.replayed, options.way))


def do_compare(options: argparse.Namespace) -> None:
    live = open_store(options.live)
    with tempfile.TemporaryDirectory() as scratch:
        tables = [
            open_store(path) if path.is_dir() else import_ncu([path], Path(scratch) / f"{number}.fathom")
            for number, path in enumerate(options.ncu)
        ]
        both = [side(item.table("counters").collect(), "ncu", lengths(item)) for item in tables]
    theirs, ours = joined(both), side(live_counters(live), "PM sampling", lengths(live))
    rows = compare(options.program, ours, theirs)
    if not rows:
        sys.exit(f"{options.live} and {options.ncu} have no kernel and metric in common")
    _, strange = matched(sorted(ours.values), sorted(theirs.values))
    print(table(summarised(rows)))
    print(reported(rows))
    print(
        f"families that ncu alone has, or that are not distinguished: {len(strange)} of {len(theirs.values)}"
    )
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


def do_summary(options: argparse.Namespace) -> None:
    rows = [row for path in options.tables for row in json.loads(path.read_text())]
    summary = summarised(rows)
    notes = {name: metric["note"] for name, metric in metrics().items() if "note" in metric}
    print(table(summary))
    total = {"summary": summary, "differences": notes, "pairs": rows}
    options.out.write_text(json.dumps(total, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    show = commands.add_parser("options", help="options for ncu")
    show.add_argument("--replayed", action="store_true", help="those that take more than one pass")
    show.add_argument("--way", help="counters to collect in a single pass instead of those")
    show.add_argument("--ways", action="store_true", help="all ways to try, one a line")
    show.set_defaults(do=do_options)
    item = commands.add_parser("compare", help="one program: its sounding and ncu's result of it")
    item.add_argument("program")
    item.add_argument("live", type=Path)
    item.add_argument("ncu", type=Path, nargs="+")
    item.add_argument("--out", type=Path, required=True)
    item.set_defaults(do=do_compare)
    all_ = commands.add_parser("summary", help="all programs")
    all_.add_argument("tables", type=Path, nargs="+")
    all_.add_argument("--out", type=Path, default=RESULT)
    all_.set_defaults(do=do_summary)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
