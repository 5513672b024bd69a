"""Signals of the input pipeline."""

from __future__ import annotations

import polars as pl

from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.value import UnknownSignalError, signal

MS = 1e6
STAGES = ("fetch", "transform", "collate", "pin", "copy")
NO_LOADER = "no data loader was seen"
NO_STAGES = "the loader's stages were not recorded"


def _fed(recorded: Recorded) -> dict:
    if recorded.feeding is None:
        raise UnknownSignalError(NO_LOADER)
    return recorded.feeding


@signal("input.wait_ms", "ms a step")
def wait_ms(recorded: Recorded) -> float | None:
    """What the steps that stand for the program waited for a batch."""
    return _fed(recorded).get("wait_ms")


@signal("input.stages_ms", "ms a batch")
def stages(recorded: Recorded) -> dict[str, float]:
    """Medians by stage; `fetch` holds transform and collate where those are told apart."""
    found = {stage: float(ms) for stage in STAGES if (ms := _fed(recorded).get(f"{stage}_ms")) is not None}
    if "fetch" not in found:
        raise UnknownSignalError(NO_STAGES)
    return found


@signal("input.workers")
def workers(recorded: Recorded) -> int:
    """Processes that load; 0: the program's own does."""
    _fed(recorded)
    rows = recorded.store.table("input", recorded.account.rank).select("worker", "fetch_ns").collect()
    if rows["fetch_ns"].null_count() == rows.height:
        raise UnknownSignalError(NO_STAGES)
    return rows["worker"].drop_nulls().n_unique()


@signal("input.restarts_ms", "ms a step")
def restarts(recorded: Recorded) -> float:
    """What steps waited for the first batches of later iterators: a loader that began anew."""
    table = recorded.store.table("input", recorded.account.rank)
    rows = table.select("loader", "batch", "start_ns", "wait_ns").sort("start_ns").collect()
    if rows.is_empty() or rows["wait_ns"].null_count():
        raise UnknownSignalError(NO_LOADER if rows.is_empty() else NO_STAGES)
    anew = rows.filter(pl.col("batch") == 0).filter(pl.int_range(pl.len()).over("loader") > 0)
    return float(anew["wait_ns"].sum()) / rows.height / MS


@signal("host.busy_percent", "% of the host's cores")
def busy_percent(recorded: Recorded) -> float | None:
    """The median while steps ran as usual: starting up and compiling say nothing of loading."""
    steps = recorded.store.table("steps", recorded.account.rank).filter(
        pl.col("phase").is_in(["clean", "timeline"])
    )
    first, last = steps.select(pl.col("mark_ns").min(), pl.col("end_ns").max()).collect().row(0)
    rows = recorded.store.table("telemetry").filter(pl.col("device") == -1).collect()
    if first is not None and last is not None:
        rows = rows.filter(pl.col("time_ns").is_between(first, last))
    median = rows["busy_percent"].median()
    return None if median is None else float(median)  # type: ignore[arg-type]


@signal("host.busy_cores")
def busy_cores(recorded: Recorded) -> float:
    """How many of the machine's cores work, whoever for."""
    cpu = recorded.machine.get("host", {}).get("cpu", {})
    percent, every = busy_percent(recorded), cpu.get("logical_cores")
    if percent is None or not every:
        raise UnknownSignalError("how busy the host's cores were was not recorded")
    return percent / 100 * every


@signal("host.cores")
def cores(recorded: Recorded) -> int | None:
    cpu = recorded.machine.get("host", {}).get("cpu", {})
    return cpu.get("quota_cores") or cpu.get("usable_cores") or cpu.get("logical_cores")
