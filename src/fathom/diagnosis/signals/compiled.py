"""Compiled functions, as the profiler and the compiler number them: FUNCTION/VERSION."""

from __future__ import annotations

import re
from collections.abc import Iterable

import polars as pl

from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Compiled
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

REGION = r"^Torch-Compiled Region: (\d+)/(\d+)"
LOOKUP = "TorchDynamo Cache Lookup"  # part of the cost of a break
COMPILATION = r"\b(\d+)/(\d+)"


@signal("host.compiled", "per step")
def compiled(recorded: Recorded) -> Compiled:
    """Compiled functions of both profiled phases; versions also include compilations in other steps."""
    regions = recorded.ops.filter(pl.col("name").str.contains(REGION))
    waits = recorded.store.table("waits", recorded.account.rank).collect()
    details = waits.filter(pl.col("cause").is_in(["compilation", "compile"]))["detail"].drop_nulls()
    versions = _versions([*regions["name"].unique(), *details.unique()])
    inside = regions.filter(recorded.inside(regions)).sort("thread", "start_ns")
    resumed = _resumed(inside, recorded)
    return Compiled(
        versions,
        inside.height / recorded.steps,
        resumed.height / recorded.steps,
        int(resumed["ns"].sum()) / recorded.steps / NS_PER_MS,
        resumed["ran"].drop_nulls().first(),  # type: ignore[arg-type]
    )


def _resumed(regions: pl.DataFrame, recorded: Recorded) -> pl.DataFrame:
    """Regions that begin within another: what Dynamo makes of a frame calls what is behind a break in it.

    Functions that were compiled each by itself follow each other. `ns` is since the host's last op or call.
    """
    open_until = pl.col("end_ns").cum_max().shift(1).over("thread")
    within = regions.with_columns(before=pl.col("start_ns").shift(1).over("thread"), until=open_until)
    done = [t.filter(phase="timeline").select("thread", "end_ns") for t in (_ops(recorded), recorded.calls)]
    ended = pl.concat(done).drop_nulls().sort("end_ns").with_columns(ended="end_ns")
    nested = within.filter(pl.col("start_ns") < pl.col("until")).drop("end_ns").sort("start_ns")
    nested = nested.join_asof(
        ended, left_on="start_ns", right_on="end_ns", by="thread", check_sortedness=False
    )
    return nested.with_columns(ns=pl.col("start_ns") - pl.max_horizontal("before", "ended"))


def _ops(recorded: Recorded) -> pl.DataFrame:
    return recorded.ops.filter(pl.col("name") != LOOKUP)


def _versions(texts: Iterable[str]) -> dict[int, int]:
    """Number of versions by function; versions are numbered from 0."""
    versions: dict[int, int] = {}
    for text in texts:
        match = re.search(REGION, text) or re.search(COMPILATION, text)
        if match:
            number, version = (int(part) for part in match.groups())
            versions[number] = max(versions.get(number, 0), version + 1)
    return versions
