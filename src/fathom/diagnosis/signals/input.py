"""Signals of the input pipeline."""

from __future__ import annotations

import msgspec
import polars as pl

from fathom.analysis import Abstained
from fathom.analysis.causes import IN_PROCESS, REGIONS
from fathom.analysis.entries import Entry
from fathom.analysis.replay import parse
from fathom.analysis.results import Input
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import LoaderRegions
from fathom.diagnosis.signals.step import replay, typical_ms
from fathom.diagnosis.signals.value import most_common, signal
from fathom.machine import find_ceiling, from_machine
from fathom.sounding import LOADERS, LoaderFacts
from fathom.timing import median
from fathom.units import NS_PER_MS

IDLE = Entry.INPUT
STAGES = ("fetch", "decode", "read", "collate", "pin")
THREAD = ["phase", "burst", "thread"]
SEED = ("aten::empty", "aten::random_", "aten::item")
NO_LOADER = "no data loader was recorded"
NO_STAGES = "the loader's stages were not recorded"
FEW, NEARLY = 5, 0.9  # batches, and the share of them that are the first of their iterator
MATTER = 0.1  # share of the host's processors below which other programs leave it its cores
NO_CLEAN = "no clean step was recorded"
_CLEAN = (pl.col("phase") == "clean") & pl.col("parent").is_null()  # micro-steps are parts of steps
NO_TOKENS = "the program reports no tokens, as fathom.step(tokens=…)"
PADDED = "the loader's batches may hold padding: report the other tokens, as fathom.step(tokens=…)"


def _fed(recorded: Recorded) -> Input:
    if recorded.feeding is None:
        raise UnknownSignalError(NO_LOADER)
    return recorded.feeding


@signal("input.wait_ms", "ms per step")
def wait_ms(recorded: Recorded) -> float | None:
    """Return the mean wait for a batch in the steps that represent the program."""
    return _fed(recorded).wait_ms


@signal("input.lost_ms", "ms per step")
def lost_ms(recorded: Recorded) -> float:
    """Return the time that clean steps wait for batches: their mean minus a replayed step that never waits.

    The timeline alone does not show it, because the loader catches up while a profiler starts. A processor
    has no queued work to do meanwhile, so it loses the whole wait. Without workers, other programs that
    interrupt it lengthen some waits, but no change of the loader saves that time: the median counts.
    """
    clean, waited = recorded.step.clean_mean_ms, wait_ms(recorded)
    if clean is None or waited is None:
        raise UnknownSignalError(NO_CLEAN)
    if recorded.account.subjects and recorded.account.subjects[0].index is None:
        return min(waited, _uninterrupted_ms(recorded)) if recorded.account.contended else waited
    return max(min(clean - _fed_ms(recorded), waited), 0.0)


def _uninterrupted_ms(recorded: Recorded) -> float:
    """Return the median wait of clean steps if the program makes its batches itself, else infinity."""
    rows = recorded.rows("input").filter(phase="clean").select("wait_ns", "worker").collect()
    alone = rows["worker"].null_count() == rows.height and rows["wait_ns"].count() > 0
    return (
        median(rows["wait_ns"].drop_nulls().to_numpy()) / NS_PER_MS * micro_steps(recorded)
        if alone
        else float("inf")
    )


def _fed_ms(recorded: Recorded) -> float:
    """Return the recorded step without waits for batches, from the ledger if it cannot be replayed.

    It is at most as long as a typical clean step, which has no profiling overhead.
    """
    fed = replay(recorded).step_ms([parse("input=0")])
    if isinstance(fed, Abstained):
        fed = sum(row.ms for row in recorded.ledger if row.entry != IDLE)
    usual = typical_ms(recorded)
    return fed if usual is None else min(fed, usual)


@signal("input.stages_ms", "ms a batch")
def stages(recorded: Recorded) -> dict[str, float]:
    """Return medians by stage; `fetch` includes `decode` and `read`, but not `collate`."""
    known = {stage: getattr(_fed(recorded), f"{stage}_ms") for stage in STAGES}
    medians = {stage: float(ms) for stage, ms in known.items() if ms is not None}
    if "fetch" not in medians:
        raise UnknownSignalError(NO_STAGES)
    return medians


@signal("input.made_ms", "ms a batch")
def made_ms(recorded: Recorded) -> float | None:
    """Return the mean time to fetch and collate a batch in clean steps."""
    rows = recorded.rows("input").filter(phase="clean").drop_nulls("fetch_ns")
    made = pl.col("fetch_ns") + pl.col("collate_ns").fill_null(0)
    mean = rows.select(made.mean() / NS_PER_MS).collect().item()
    return None if mean is None else float(mean)


@signal("input.read_bytes", "B a batch")
def read_bytes(recorded: Recorded) -> float | None:
    """Return the median number of bytes read from files while a batch's samples were fetched."""
    return _fed(recorded).read_bytes


@signal("input.told_tokens", "per step")
def told_tokens(recorded: Recorded) -> float:
    """Return the tokens that the program reports, in the steps with recorded shapes if there are any.

    Token counts from a loader's batches are ignored, because they include padding.
    """
    rows = recorded.rows("steps").select("source", "tokens", "phase").collect()
    reported = rows.filter(pl.col("source") == "mark", pl.col("tokens") > 0)
    shaped = reported.filter(pl.col("phase") == "attribution")
    mean = (reported if shaped.is_empty() else shaped)["tokens"].mean()
    if mean is None:
        raise UnknownSignalError(NO_TOKENS if rows["tokens"].drop_nulls().is_empty() else PADDED)
    return float(mean)  # type: ignore[arg-type]


@signal("input.micro_steps")
def micro_steps(recorded: Recorded) -> int:
    """Return the median number of batches per step."""
    steps = recorded.rows("steps").filter(phase="timeline").collect()
    openings = steps.drop_nulls("parent").group_by("burst", "parent").len()["len"]
    return max(int(openings.median() or 1), 1)  # type: ignore[arg-type]


@signal("input.workers")
def workers(recorded: Recorded) -> int:
    """Return the number of worker processes; 0 if the program itself loads the data."""
    _fed(recorded)
    rows = recorded.rows("input").select("worker", "fetch_ns").collect()
    if rows["fetch_ns"].null_count() == rows.height:
        raise UnknownSignalError(NO_STAGES)
    return rows["worker"].drop_nulls().n_unique()


@signal("input.about")
def about(recorded: Recorded) -> LoaderFacts:
    """Return the loader that most batches come from, as recorded by the probe."""
    rows = recorded.rows("input").select("loader").collect()
    if rows.is_empty():
        raise UnknownSignalError(NO_LOADER)
    most = most_common(rows["loader"])
    loaders = [loader for loader in recorded.facts.get(LOADERS, []) if loader.get("loader") == most]
    if not loaders:
        raise UnknownSignalError("its data loader was not described in the recording")
    return msgspec.convert(loaders[-1], LoaderFacts)


@signal("input.samples", "a batch")
def samples(recorded: Recorded) -> float:
    """Return the samples per batch, from the loader if known, else from the steps."""
    try:
        size = about(recorded).batch_size
    except UnknownSignalError:
        size = None
    if size:
        return float(size)
    rows = recorded.rows("steps").select("samples").collect()
    mean = rows["samples"].drop_nulls().mean()
    if mean is None:
        raise UnknownSignalError("the number of samples in a batch was not recorded")
    return float(mean) / micro_steps(recorded)  # type: ignore[arg-type]


@signal("input.transport", "B/ms")
def transport(recorded: Recorded) -> float:
    """Return the measured rate at which workers pass tensors to the program."""
    ceiling = find_ceiling(from_machine(recorded.machine), "host.loader")
    if ceiling is None or not ceiling.value:
        raise UnknownSignalError("the rate of the loader's transport was not measured on this machine")
    return ceiling.value / 1e3


@signal("input.threads", "a worker")
def threads(recorded: Recorded) -> int:
    """Return torch's compute threads in each loading process, without threads of other libraries."""
    rows = recorded.rows("input").select("threads").collect()
    median = rows["threads"].median()
    if median is None:
        raise UnknownSignalError("the number of threads in workers was not recorded")
    return int(median)  # type: ignore[arg-type]


@signal("input.cpu_wait_share")
def cpu_wait_share(recorded: Recorded) -> float | None:
    """Return the share of the workers' time in which they are ready to run but have no core."""
    return _fed(recorded).cpu_wait_share


@signal("input.regions")
def regions(recorded: Recorded) -> LoaderRegions:
    """Return the loader, from annotations of the timeline. Raises UnknownSignalError without any."""
    named = recorded.ops.filter(pl.col("name").str.contains(REGIONS["input"].pattern))
    if named.is_empty():
        raise UnknownSignalError(NO_LOADER)
    loaders = named.filter(pl.col("name").str.contains("(DataLoader)#", literal=True))
    alone = bool(len(loaders)) and bool(loaders["name"].str.contains(IN_PROCESS, literal=True).all())
    return LoaderRegions(alone, most_common(named["ran"]), _first(recorded, loaders))


def _first(recorded: Recorded, loaders: pl.DataFrame) -> float:
    """Return the share of the steps' loader time that is for a loader's first batch.

    A loader starts by drawing its workers' seed, between two batches; samplers draw theirs within a batch.
    """
    loaders = loaders.with_columns(used=recorded.inside(loaders)).sort("start_ns")
    took = pl.col("end_ns") - pl.col("start_ns")
    drawn = _seeds(recorded.ops).sort("start_ns")
    before = loaders.select(*THREAD, "start_ns", until="end_ns")
    drawn = drawn.join_asof(before, on="start_ns", by=THREAD, check_sortedness=False)
    drawn = drawn.filter((pl.col("until") <= pl.col("start_ns")).fill_null(True)).select(*THREAD, "start_ns")
    after = loaders.select(*THREAD, "start_ns", "id", "used", ns=took)
    begun = drawn.join_asof(after, on="start_ns", by=THREAD, strategy="forward", check_sortedness=False)
    total, first = (
        rows.filter("used").select(pl.col("ns").sum()).item() for rows in (after, begun.unique("id"))
    )
    return float(first / total) if total else 0.0


def _seeds(ops: pl.DataFrame) -> pl.DataFrame:
    """Return calls of `torch.empty(()).random_().item()`, which are these three ops in sequence."""
    siblings = [*THREAD, "parent"]
    ops = ops.select(*siblings, "start_ns", "name", "kind").filter(kind="op")
    drawing = ops.filter(name=SEED[1]).select(siblings).unique()
    ops = ops.join(drawing, on=siblings, how="semi", nulls_equal=True)
    ops = ops.sort(*siblings, "start_ns", maintain_order=True)
    return ops.filter(
        pl.col("name").shift(by).over(siblings) == name for by, name in zip((1, 0, -1), SEED, strict=True)
    )


@signal("input.restarts_ms", "ms a restart")
def restarts(recorded: Recorded) -> list[float]:
    """Return the extra time of clean steps in which a loader restarted with new workers."""
    rank = recorded.account.rank
    rows = (
        recorded.store.table("input", rank).select("loader", "batch", "start_ns").sort("start_ns").collect()
    )
    if rows.is_empty():
        raise UnknownSignalError(NO_LOADER)
    steps = recorded.store.table("steps", rank).filter(_CLEAN).collect()
    later = pl.int_range(pl.len()).over("loader") > 0
    begun = rows.filter(pl.col("batch") == 0).filter(later)["start_ns"]
    anew = begun.search_sorted(steps["end_ns"]) > begun.search_sorted(steps["mark_ns"])
    ended = (pl.col("device_end_ns") - pl.col("device_ns"), pl.col("end_ns") - pl.col("mark_ns"))
    lengths = steps.select(pl.coalesce(ended) / NS_PER_MS).to_series()
    usual = lengths.filter(~anew).median()
    if usual is None:
        raise UnknownSignalError(NO_CLEAN)
    return [max(ms - float(usual), 0.0) for ms in lengths.filter(anew)]  # type: ignore[arg-type]


@signal("input.anew_ms", "ms per step")
def anew(recorded: Recorded) -> float:
    """Return the time that clean steps wait for new iterators, beside their batches; 0 if they keep one.

    An iterator is new if its batch is the first of several. With workers, the wait is for new processes too.
    Batches count with their median, because a busy host lengthens some waits.
    """
    rows = recorded.rows("input").filter(phase="clean").collect()
    own = rows if rows.is_empty() else rows.filter(loader=most_common(rows["loader"]))
    if own.height < FEW or (about(recorded).batches or 1) == 1:
        return 0.0
    first = own.filter(batch=0)
    made = pl.when(pl.col("worker").is_null()).then(pl.col("fetch_ns") + pl.col("collate_ns")).otherwise(0)
    wait = first.select(pl.col("wait_ns") - made.fill_null(0)).to_series().median()
    if wait is None or first.height < NEARLY * own.height:
        return 0.0
    return float(wait) * own.height / max(steps(recorded), 1) / NS_PER_MS  # type: ignore[arg-type]


@signal("input.steps")
def steps(recorded: Recorded) -> int:
    """Return the number of clean steps that were searched for restarts."""
    return int(recorded.rows("steps").filter(_CLEAN).select(pl.len()).collect().item())


@signal("host.busy_percent", "% of the host's cores")
def busy_percent(recorded: Recorded) -> float | None:
    """Return the median during clean and timeline steps, because startup and compilation are irrelevant."""
    steps = recorded.rows("steps").filter(pl.col("phase").is_in(["clean", "timeline"]))
    first, last = steps.select(pl.col("mark_ns").min(), pl.col("end_ns").max()).collect().row(0)
    rows = recorded.store.table("telemetry").filter(pl.col("device") == -1).collect()
    if first is not None and last is not None:
        rows = rows.filter(pl.col("time_ns").is_between(first, last))
    median = rows["busy_percent"].median()
    return None if median is None else float(median)  # type: ignore[arg-type]


@signal("host.busy_cores")
def busy_cores(recorded: Recorded) -> float:
    """Return the busy cores of the machine, for all programs; known only if the program may use all cores."""
    cpu = recorded.machine.get("host", {}).get("cpu", {})
    percent, every = busy_percent(recorded), cpu.get("logical_cores")
    if percent is None or not every:
        raise UnknownSignalError("the utilisation of the host's cores was not recorded")
    if (cores(recorded) or every) < every:
        raise UnknownSignalError("the count includes cores of the host that the program may not use")
    return percent / 100 * every


@signal("host.cores")
def cores(recorded: Recorded) -> float | None:
    """Return the number of cores that the program may use."""
    cpu = recorded.machine.get("host", {}).get("cpu", {})
    known = [cpu.get("quota_cores"), cpu.get("usable_cores"), cpu.get("logical_cores")]
    return min(filter(None, known), default=None)


@signal("host.threads", "threads")
def own_threads(recorded: Recorded) -> int | None:
    """Return the threads that one op of the program's own process may use on the CPU."""
    return recorded.facts.get("threads")


@signal("host.others_cores")
def others_cores(recorded: Recorded) -> float:
    """Return the cores that other programs took from those that the program may use, in its clean steps."""
    every = recorded.machine.get("host", {}).get("cpu", {}).get("logical_cores")
    share, _ = recorded.account.others(recorded.store)
    if not every or share < MATTER:
        return 0.0
    beside = every - (cores(recorded) or every)  # others may run there
    return max(share * every - beside, 0.0)
