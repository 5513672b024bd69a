"""Signals of single collectives: what is exposed, what blocks the host, and what is moved for nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from statistics import median
from typing import Any

import msgspec
import numpy as np
import polars as pl

from fathom.analysis import Account
from fathom.analysis.columns import distinct
from fathom.analysis.communication import (
    ExpertLoad,
    Pipeline,
    PlacedGroup,
    expert_loads,
    pipeline_of,
    placed_groups,
)
from fathom.analysis.intervals import NOTHING, Spans, complement, covered, of_rows, spans, subtract, union
from fathom.analysis.measures import launch_size
from fathom.diagnosis.signals.communication import FORWARD, LARGE, REDUCES, REDUCTION, account, calls
from fathom.diagnosis.signals.numbers import products
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

TINY = 64 * 1024  # bytes: a metric
GATHERS = 4  # layers
SYNCHRONOUS = r"Synchronize$|^cudaMemcpy$"
REDUCING = rf"{REDUCTION}|^torch(::|\.)distributed(::|\.ddp\.)reducer"  # ops
NO_THREADS = "the threads that called the collectives were not recorded"


class AfterBackward(msgspec.Struct, frozen=True):
    """Reductions that start after all compute of the backward pass; times per step."""

    count: float
    bytes: float
    exposed_ms: float
    compute_ms: float  # without communication, before them
    blocks: float = 0.0  # of their kernels, each of which takes a multiprocessor from compute beside it


class Gathers(msgspec.Struct, frozen=True):
    """Large all-gathers of sharded parameters; times per step."""

    count: float
    bytes: float  # per step
    exposed_ms: float
    total_ms: float
    longest_ms: float  # of one
    again: float  # of them, in the backward pass
    again_ms: float
    again_bytes: float


class Blocking(msgspec.Struct, frozen=True):
    """Tiny collectives whose result the host waits for; times per step."""

    count: float
    operation: str
    idle_ms: float  # without a compute kernel, around them
    one_ms: float  # of one collective


class Search(msgspec.Struct, frozen=True):
    """The search of DistributedDataParallel for unused parameters; times per step."""

    parameters: int
    idle_ms: float  # of the device, during the search
    reduced_ms: float  # exposed time of the reduction of the parameters in use


class Padding(msgspec.Struct, frozen=True):
    """All-to-alls that move more rows than there are routed tokens."""

    factor: float  # rows moved over rows routed
    rows: int
    routed: int
    exposed_ms: float
    families: tuple[str, ...]


def exposed_calls(recorded: Recorded) -> pl.DataFrame:
    """Return the collectives of the used windows with the nanoseconds in which each is exposed."""
    rows, computing = calls(recorded), recorded.subject.computing
    length = rows["end_ns"] - rows["start_ns"]
    hidden = covered(computing, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    return rows.with_columns(exposed=length - pl.Series(hidden), window=recorded.window(rows))


def _caller(recorded: Recorded) -> int:
    caller = recorded.account.timeline.caller
    if caller is None:
        raise UnknownSignalError(NO_THREADS)
    return caller


def _ms(recorded: Recorded, ns: float) -> float:
    return recorded.per_step_ms(float(ns))


@signal("communication.after_backward", "ms per step")
def after_backward(recorded: Recorded) -> list[AfterBackward]:
    """Return the large reductions, if the steps' thread starts all of them after its backward pass."""
    rows = exposed_calls(recorded)
    rows = rows.filter(pl.col("operation").is_in(REDUCES), pl.col("bytes") >= LARGE)
    if rows.is_empty() or rows["thread"].null_count() or (rows["thread"] != _caller(recorded)).any():
        return []
    engine = recorded.ops.filter(pl.col("thread") != _caller(recorded), phase="timeline")
    starts = rows.group_by("window").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    computing = recorded.subject.computing
    between = covered(computing, starts["start_ns"].to_numpy(), starts["end_ns"].to_numpy()).sum()
    length = int((rows["end_ns"] - rows["start_ns"]).sum())
    if engine.is_empty() or between > 0.1 * length:
        return []
    figures = account(recorded)
    return [
        AfterBackward(
            rows.height / recorded.steps,
            float(rows["bytes"].sum()) / recorded.steps,
            _ms(recorded, int(rows["exposed"].sum())),
            figures.compute_ms - figures.overlapped_ms,
            _blocks(recorded, rows),
        )
    ]


def _blocks(recorded: Recorded, rows: pl.DataFrame) -> float:
    """Return the median number of blocks of the kernels of these collectives; 0 if unknown."""
    grids = recorded.kernels.join(rows, on=["stream", "start_ns", "name"], how="semi")["grid"].drop_nulls()
    return median(launch_size(grid) or 0 for grid in grids) if len(grids) else 0.0


@signal("communication.gathers", "ms per step")
def gathers(recorded: Recorded) -> list[Gathers]:
    """Return the large all-gathers, if a step has several."""
    rows = exposed_calls(recorded).filter(pl.col("operation") == "all_gather", pl.col("bytes") >= LARGE)
    if rows.height < GATHERS * recorded.steps:
        return []
    caller = _caller(recorded)
    again = rows.filter(pl.col("thread").is_not_null(), pl.col("thread") != caller)
    length = rows["end_ns"] - rows["start_ns"]
    return [
        Gathers(
            rows.height / recorded.steps,
            float(rows["bytes"].sum()) / recorded.steps,
            _ms(recorded, int(rows["exposed"].sum())),
            _ms(recorded, int(length.sum())),
            float(length.max()) / NS_PER_MS,  # type: ignore[arg-type]
            again.height / recorded.steps,
            _ms(recorded, int((again["end_ns"] - again["start_ns"]).sum())),
            float(again["bytes"].sum()) / recorded.steps,
        )
    ]


@signal("communication.groups", "ms per step")
def groups(recorded: Recorded) -> list[PlacedGroup]:
    """Return the process groups with the hosts that they span."""
    hosts = {rank.rank: rank.host for rank in recorded.store.manifest.ranks}
    return placed_groups(calls(recorded), account(recorded).collectives, hosts)


@signal("communication.blocking", "ms per step")
def blocking(recorded: Recorded) -> list[Blocking]:
    """Return the tiny collectives after which the host waits before it launches more compute."""
    rows = exposed_calls(recorded).filter((pl.col("bytes") <= TINY) | (pl.col("operation") == "barrier"))
    computing = recorded.subject.computing
    if rows.is_empty() or not len(computing.starts):
        return []
    launches = recorded.calls.filter(phase="timeline")
    waits = launches.filter(pl.col("api").str.contains(SYNCHRONOUS))["end_ns"].sort().to_numpy()
    ends = rows["end_ns"].to_numpy()
    after = np.searchsorted(computing.starts, ends - 1, "right")
    known = after < len(computing.starts)
    resumed = computing.starts[np.minimum(after, len(computing.starts) - 1)]
    # The host returned from a wait between the end of the collective and the next compute.
    waited = np.searchsorted(waits, resumed, "right") > np.searchsorted(waits, ends - 1, "left")
    rows = rows.filter(pl.Series(known & waited))
    if rows.is_empty():
        return []
    gaps = _gaps_around(rows, computing)
    return [
        Blocking(
            rows.height / recorded.steps,
            str(rows["operation"].mode().sort()[0]),
            _ms(recorded, gaps),
            float((rows["end_ns"] - rows["start_ns"]).median() or 0) / NS_PER_MS,  # type: ignore[arg-type]
        )
    ]


def _gaps_around(rows: pl.DataFrame, computing: Spans) -> int:
    """Return the time without compute in the gaps of compute that contain `rows`; each gap counts once."""
    place = distinct(np.searchsorted(computing.starts, rows["start_ns"].to_numpy(), "right"))
    place = place[(place > 0) & (place < len(computing.starts))]
    return int((computing.starts[place] - computing.ends[place - 1]).clip(0).sum())


@signal("communication.unused", "ms per step")
def unused(recorded: Recorded) -> list[Search]:
    """Return the search for unused parameters: DDP then reduces one int32 per parameter in each step."""
    rows = exposed_calls(recorded).filter(operation="all_reduce", dtype="int32")
    every = recorded.ops.filter(pl.col("name") == FORWARD, phase="timeline")
    forward = every.filter(recorded.inside(every) | recorded.ahead(every))
    if rows.height != recorded.steps or forward.is_empty() or rows["bytes"].n_unique() != 1:
        return []
    inner = recorded.ops.filter(pl.col("kind") == "op", phase="timeline").sort("start_ns")
    searches = []
    for start, end, thread in forward.select("start_ns", "end_ns", "thread").iter_rows():
        mine = inner.filter(pl.col("start_ns").is_between(start, end), thread=thread)
        last = mine.filter(pl.col("end_ns") <= end)["end_ns"].max()
        searches.append((last if last is not None else start, end))
    if not searches:
        return []
    idle = _idle(recorded, [start for start, _ in searches], [end for _, end in searches])
    exposed = int(rows["exposed"].sum()) if recorded.account.indices else _exposed_alone(recorded, rows)
    reduced = _ms(recorded, exposed)
    return [Search(int(rows["bytes"][0]) // 4, _ms(recorded, idle), reduced)]


def _exposed_alone(recorded: Recorded, rows: pl.DataFrame) -> int:
    """Return the ns in which the program waits, and only these collectives of host threads move bytes.

    A wait for a late rank remains, at the next collective.
    """
    others = calls(recorded).join(rows, on=["start_ns", "stream"], how="anti")
    moving = union(
        rows.select(pl.coalesce("arrived_ns", "start_ns")).to_series().to_numpy(), rows["end_ns"].to_numpy()
    )
    return subtract(subtract(moving, of_rows(others)), recorded.subject.computing).length


def _idle(recorded: Recorded, starts: list[Any], ends: list[Any]) -> int:
    during = spans(starts, ends)
    busy = of_rows(recorded.kernels.filter(phase="timeline")) if recorded.account.indices else NOTHING
    idle = complement(busy, int(min(starts)), int(max(ends)))
    return int(covered(idle, *during).sum())


@signal("communication.reducing", "ms per step")
def reducing(recorded: Recorded) -> float:
    """Return the idle time of the device while the host runs the ops that reduce gradients."""
    ops = recorded.ops.filter(pl.col("name").str.contains(REDUCING), phase="timeline")
    ops = ops.filter(recorded.inside(ops))
    if ops.is_empty() or not recorded.account.indices:
        return 0.0
    return _ms(recorded, _idle(recorded, ops["start_ns"].to_list(), ops["end_ns"].to_list()))


@signal("communication.pipeline", "ms per step")
def pipeline(recorded: Recorded) -> list[Pipeline]:
    """Return the pipeline that the ranks form, if they form one."""
    formed = pipeline_in(recorded.accounts)
    return [formed] if formed else []


def pipeline_in(accounts: Iterable[Account]) -> Pipeline | None:
    """Return the pipeline that ranks with these accounts form; None if they form none."""
    ranks = {}
    for own in accounts:
        subject = own.subjects[0] if own.subjects else None
        if subject is None or subject.collectives is None or own.windows is None:
            continue
        windows = own.windows
        used = Spans(windows.starts[windows.used], windows.ends[windows.used])
        ranks[own.rank] = (subject.collectives, subject.computing, used)
    return pipeline_of(ranks)


@signal("communication.experts")
def experts(recorded: Recorded) -> list[ExpertLoad]:
    """Return the loads of the ranks' experts; [] if tokens are spread evenly, or there are no experts."""
    return experts_in(recorded.accounts)


def experts_in(accounts: Iterable[Account]) -> list[ExpertLoad]:
    """Return the loads of experts on ranks with these accounts."""
    known = {own.rank: own.subjects[0].collectives for own in accounts if own.subjects}
    return expert_loads({rank: rows for rank, rows in known.items() if rows is not None and rows.height})


@signal("communication.padding", "ms per step")
def padding(recorded: Recorded) -> list[Padding]:
    """Return the all-to-alls of constant size that move more rows than the router chose experts for."""
    rows = exposed_calls(recorded).filter(pl.col("operation") == "all_to_all", pl.col("sent").is_not_null())
    if rows.is_empty() or rows["sent"].n_unique() != 1 or not rows["sent"].equals(rows["received"]):
        return []
    routed = _routed(recorded.ops)
    widths = [product.k for product in products(recorded)]
    size = {"bf16": 2, "fp16": 2, "fp32": 4}.get(rows["dtype"][0] or "")
    if not routed or not widths or not size:
        return []
    moved = int(rows["sent"][0]) // size // max(set(widths), key=widths.count)
    return [
        Padding(
            moved / routed,
            moved,
            routed,
            _ms(recorded, int(rows["exposed"].sum())),
            tuple(rows["family"].drop_nulls().unique().sort()),
        )
    ]


def _routed(ops: pl.DataFrame) -> int:
    """Return the number of rows that each call of topk routes: tokens times k; 0 if unknown."""
    chosen = ops.filter(pl.col("name") == "aten::topk").drop_nulls(["shapes", "values"])
    counts = set()
    for shapes, values in chosen.select("shapes", "values").unique().iter_rows():
        shape, given = json.loads(shapes)[0], json.loads(values)
        if len(shape) >= 2 and len(given) > 1 and str(given[1]).isdigit():
            counts.add(int(np.prod(shape[:-1])) * int(given[1]))
    return counts.pop() if len(counts) == 1 else 0
