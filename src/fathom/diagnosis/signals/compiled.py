"""Compiled functions, as the profiler and the compiler number them: FUNCTION/VERSION."""

from __future__ import annotations

import re
from collections.abc import Iterable

import polars as pl

from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Compiled
from fathom.diagnosis.signals.value import signal

MS = 1e6
REGION = r"^Torch-Compiled Region: (\d+)/(\d+)"
COMPILATION = r"\b(\d+)/(\d+)"


@signal("host.compiled", "a step")
def compiled(recorded: Recorded) -> Compiled:
    """Of both profiled phases; versions also of what was compiled in other steps, where that was noted."""
    regions = recorded.ops.filter(pl.col("name").str.contains(REGION))
    waits = recorded.store.table("waits", recorded.account.rank).collect()
    details = waits.filter(pl.col("cause").is_in(["compilation", "compile"]))["detail"].drop_nulls()
    versions = _versions([*regions["name"].unique(), *details.unique()])
    windows = recorded.window(regions)
    inside = regions.with_columns(window=windows).filter(pl.col("window") >= 0).sort("thread", "start_ns")
    functions = inside.select("window", pl.col("name").str.extract(REGION)).n_unique()
    between = pl.col("start_ns").shift(-1) - pl.col("end_ns")
    apart = inside.select(between.over("window", "thread").alias("ns")).filter(pl.col("ns") > 0)
    return Compiled(
        versions,
        inside.height / recorded.steps,
        functions / recorded.steps,
        int(apart["ns"].sum()) / recorded.steps / MS,
        regions["source"].drop_nulls().first(),  # type: ignore[arg-type]
    )


def _versions(texts: Iterable[str]) -> dict[int, int]:
    """Versions by function: they are numbered from 0."""
    found: dict[int, int] = {}
    for text in texts:
        told = re.search(REGION, text) or re.search(COMPILATION, text)
        if told:
            number, version = (int(part) for part in told.groups())
            found[number] = max(found.get(number, 0), version + 1)
    return found
