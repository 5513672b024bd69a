"""Other programs on the host while clean steps ran."""

from __future__ import annotations

import polars as pl

from fathom.analysis.memory import HOST
from fathom.sounding import Store

CONTENDED = 80.0  # % of the processors in use: below it, the program gets those that it wants
MATTER = 0.1  # of the processors


def readings(store: Store, rank: int, device: int, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the telemetry of a device from the first of the steps to the last."""
    between = pl.col("time_ns").is_between(steps["mark_ns"].min(), steps["end_ns"].max())
    rows = store.table("telemetry", rank).filter(pl.col("device") == device, between)
    return rows.sort("time_ns").collect()


def others_share(store: Store, rank: int, steps: pl.DataFrame) -> tuple[float, bool]:
    """Return the share of the host's processors that other programs used during clean steps, 0 if unknown.

    The second value says whether it lengthens steps: it is large, and hardly a processor was free.
    """
    rows = readings(store, rank, HOST, steps.filter(pl.col("phase") == "clean"))
    used = rows.select("busy_percent", others=pl.col("busy_percent") - pl.col("program_percent")).drop_nulls()
    if used.is_empty():
        return 0.0, False
    busy, others = (float(used[name].median()) for name in ("busy_percent", "others"))  # type: ignore[arg-type]
    share = max(others, 0.0) / 100
    return share, share >= MATTER and busy >= CONTENDED
