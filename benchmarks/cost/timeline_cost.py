"""Cost of recording the timeline per step: each burst against the clean steps beside it, in one recording.

    python benchmarks/cost/timeline_cost.py FOLDER  # of soundings; needs the table libraries

Several runs of a program are NAME-1.fathom, NAME-2.fathom and so on; their bursts count together.

A step is its window on the device, and in clean steps what device events measured. Other work on the machine
changes a host-bound step by 20 % within seconds, so that only steps right before and after a burst compare
with it. The median over bursts is kept, with an interval from drawing bursts anew.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).parent))
from cost_commands import keep

from fathom.analysis.recording import read_timeline
from fathom.analysis.subjects import subjects
from fathom.analysis.windows import base
from fathom.sounding import open_store

RESAMPLES = 4000


def bursts(path: Path) -> tuple[str, list[float]]:
    """How the timeline was recorded, and the ratio of each burst to the clean steps beside it."""
    store = open_store(path)
    rank = store.manifest.ranks[0]
    windows = subjects(read_timeline(store, rank.rank))[0].ledger.windows
    clean = _clean(store.table("steps", rank.rank).collect(), windows.kind)
    result = []
    for burst in np.unique(windows.bursts[windows.used]).tolist():
        mine = windows.used & (windows.bursts == burst)
        inside = float(np.mean((windows.ends - windows.starts)[mine]))
        begun = int(windows.starts[mine].min())
        beside = [_beside(clean, begun, after) for after in (False, True)]
        if all(beside):
            result.append(inside / float(np.sqrt(beside[0] * beside[1])))
    return str(rank.facts.get("timeline")), result


def _clean(steps: pl.DataFrame, kind: str) -> pl.DataFrame:
    """burst, start and length of the clean steps of that kind."""
    alike = pl.col("kind").str.split("+").list.first() == base(kind)
    rows = steps.filter(pl.col("phase") == "clean", pl.col("parent").is_null(), alike)
    on_device = pl.col("device_end_ns") - pl.col("device_ns")
    took = pl.coalesce(on_device, pl.col("end_ns") - pl.col("mark_ns"))
    return rows.select("burst", "mark_ns", took=took).drop_nulls()


def _beside(clean: pl.DataFrame, at: int, after: bool) -> float:
    """The median of the stretch of clean steps that is next to the time `at`; 0 where there is none."""
    side = clean.filter(pl.col("mark_ns") > at if after else pl.col("mark_ns") < at).sort("mark_ns")
    if side.is_empty():
        return 0.0
    burst = side["burst"][0 if after else -1]
    near = side.filter(burst=burst)["took"]
    return float((near.head(5) if after else near.tail(5)).median())  # type: ignore[arg-type]


def reported(name: str, paths: list[Path]) -> dict[str, Any]:
    """The figures of the recordings of a program."""
    runs = [bursts(path) for path in paths]
    ratios = [ratio for _, each in runs for ratio in each]
    draw = np.random.default_rng(0)
    drawn = np.median(draw.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return {
        "program": name,
        "way": runs[0][0],
        "runs": [round(statistics.median(each), 3) for _, each in runs],
        "bursts": len(ratios),
        "median": round(statistics.median(ratios), 4),
        "low": round(float(low), 4),
        "high": round(float(high), 4),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def program(path: Path) -> str:
    return re.sub(r"(-\d+)?\.fathom$", "", path.name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    options = parser.parse_args()
    by_program: dict[str, list[Path]] = {}
    for path in sorted(options.folder.glob("*.fathom")):
        by_program.setdefault(program(path), []).append(path)
    wanted = {name: paths for name, paths in by_program.items() if not options.only or name in options.only}
    keep("timeline_cost.json", [reported(name, paths) for name, paths in wanted.items()])


if __name__ == "__main__":
    main()
