"""How much of a program's GPU time has counters, and how sure they are.

    python benchmarks/counters/counters_coverage.py SOUNDING… [--out FILE]

A counter of a kernel family counts as sure where its standard error is at most 1 point (of a share in
percent) or 2 % of its value; a family counts where at least 50 counters are sure. Writes
results/counters_coverage.json: for each sounding the share of GPU time of these families, of all and of those
that take 1 % or more, and the families of 1 % or more that fall short.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import polars as pl

from fathom.analysis.folding import Folding
from fathom.analysis.folding.families import AND
from fathom.sounding import Store, open_store

RESULT = Path(__file__).resolve().parents[1] / "results" / "counters_coverage.json"
POINTS, SHARE, ENOUGH, LARGE = 1.0, 0.02, 50, 0.01


def coverage(store: Store, rank: int = 0) -> dict[str, Any]:
    """Shares of the kernels' time on the first device, in the bursts with counters."""
    from fathom.analysis.device import detail
    from fathom.analysis.folding import counters_of

    rows = store.table("kernels", rank).filter(phase="counters", kind="compute").collect()
    time = rows.group_by(family=detail()).agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    time = time.with_columns(share=pl.col("ns") / pl.col("ns").sum())
    folded = counters_of(store, rank)
    sure = (pl.col("error") <= POINTS) & pl.col("counter").str.contains("pct") | (
        pl.col("error") <= SHARE * pl.col("value").abs()
    )
    counts = of_each(folded).filter(sure).group_by("family").agg(sure=pl.col("counter").n_unique())
    families = time.join(counts, "family", "left").with_columns(pl.col("sure").fill_null(0))
    good, large = families.filter(pl.col("sure") >= ENOUGH), families.filter(pl.col("share") >= LARGE)
    short = large.filter(pl.col("sure") < ENOUGH).sort("share", descending=True)
    return {
        "program": store.path.name,
        "counters": folded.frame["counter"].n_unique(),
        "families": len(families),
        "share_known": float(good["share"].sum()),
        "large_families": len(large),
        "large_known": len(large) - len(short),
        "short": [{"family": f, "share": share, "sure": n} for f, _, share, n in short.iter_rows()],
        "bursts": len(folded.alignment),
        "alignment_error_ns": [round(a.error_ns, 1) for a in folded.alignment if not a.why],
    }


def of_each(folded: Folding) -> pl.DataFrame:
    """Rows of groups as rows of each family in it, and rows of a pool as rows of those that only it has."""
    said = folded.frame.with_columns(pl.col("family").str.split(AND)).explode("family")
    own = set(folded.frame.filter(pl.col("source") != "static")["family"])
    pairs = [
        (pool.label, name, pool.device) for pool in folded.pools for name in pool.families if name not in own
    ]
    pooled = pl.DataFrame(
        pairs, {"family": pl.String, "one": pl.String, "device": said.schema["device"]}, orient="row"
    )
    each = said.join(pooled, on=["family", "device"]).with_columns(family="one").drop("one")
    return pl.concat([said, each])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("soundings", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    rows = [coverage(open_store(path)) for path in options.soundings]
    for row in rows:
        print(
            f"{row['program']:32} {row['counters']:4} counters  {row['share_known']:6.1%} of GPU time sure"
            f"  {row['large_known']}/{row['large_families']} families of 1 % and more"
        )
        for family in row["short"]:
            print(f"    {family['share']:6.1%} {family['sure']:3} sure  {family['family'][:80]}")
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
