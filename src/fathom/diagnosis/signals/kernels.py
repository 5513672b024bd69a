"""Signals of device work: its ops, durations, and the counters of families."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis import detail
from fathom.analysis.entries import Entry
from fathom.analysis.folding import counters_of
from fathom.analysis.measures import Portrait, device_portraits, launch_size
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Family, Kernel, Work
from fathom.diagnosis.signals.value import signal
from fathom.machine import limits_of
from fathom.units import NS_PER_MS, NS_PER_US

_ENTRY = {"collective": Entry.COMMUNICATION, "copy": Entry.COPY, "set": Entry.COPY}
SMALL = 0.005  # of the step: rules and the account look at no smaller families
_OF_OPS = ["path", "shapes", "dtypes", "module", "source", "region"]


@signal("kernels.work", "ms per step")
def work(recorded: Recorded) -> list[Work]:
    """Return device work by family and op, longest first; a family's work sums to its row of the ledger."""
    rows = linked(recorded)
    keys = ["entry", "label", *_OF_OPS]
    shape = [pl.col(name).mode().sort().first() for name in ("grid", "block")]
    rest = [
        pl.col("ran").mode().sort().first(),
        pl.col("alone").all(),
        pl.col("bytes").sum(),
        pl.col("ns").sum(),
        pl.len().alias("count"),
        *shape,
    ]
    groups = rows.group_by(keys, maintain_order=True).agg(rest)
    groups = groups.with_columns(share=pl.col("ns") / pl.col("ns").sum().over("entry", "label"))
    ledger = {(e.entry, e.detail): e.ms for e in recorded.ledger}
    works = [
        _work(row, ledger[row["entry"], row["label"]], recorded.steps)
        for row in groups.iter_rows(named=True)
        if (row["entry"], row["label"]) in ledger
    ]
    return sorted(works, key=lambda item: -item.ms)


def _work(row: dict, ms: float, steps: int) -> Work:
    return Work(
        entry=row["entry"],
        family=row["label"],
        ms=ms * row["share"],
        count=row["count"] / steps,
        ops=tuple(row["path"]),
        **{name: row[name] for name in _OF_OPS[1:]},
        blocks=launch_size(row["grid"]),
        threads=launch_size(row["block"]),
        ran=row["ran"],
        alone=row["alone"],
        bytes=row["bytes"] / steps,
    )


def in_order(recorded: Recorded) -> pl.DataFrame:
    """Return the main stream's compute kernels in order. Raises UnknownSignalError without shapes."""
    rows = linked(recorded).filter(pl.col("alone"), pl.col("entry") == Entry.COMPUTE).sort("start_ns")
    if rows["shapes"].null_count() == rows.height:
        raise UnknownSignalError("shapes were not recorded")
    return rows


@signal("kernels.launched")
def launched(recorded: Recorded) -> list[Kernel]:
    """Return the rows of `in_order` as tuples."""
    rows = in_order(recorded)
    columns = ("label", "path", "shapes", "dtypes", "module", "source", "ns")
    windows = rows.select(*columns, window=recorded.window(rows))
    return [Kernel._make(row) for row in windows.iter_rows()]


def combined(mine: list[Kernel], steps: int) -> Work:
    """Combine kernels of one family and op into one Work."""
    label, ops, shapes, dtypes, module, source, *_ = mine[0]
    ms, count = sum(row.ns for row in mine) / steps / NS_PER_MS, len(mine) / steps
    return Work(Entry.COMPUTE, label, ms, count, tuple(ops), shapes, dtypes, module, source)


def timed(recorded: Recorded) -> pl.DataFrame:
    """Return every kernel of the device with its family, ledger entry and duration."""
    return recorded.kernels.with_columns(
        label=detail(),
        entry=pl.col("kind").replace_strict(_ENTRY, default=Entry.COMPUTE, return_dtype=pl.String),
        ns=(pl.col("end_ns") - pl.col("start_ns")).clip(lower_bound=0),
    )


@signal("kernels.linked")
def linked(recorded: Recorded) -> pl.DataFrame:
    """Return the kernels of the used windows, with their family and their ops' shapes, path and source."""
    rows = _with_ops(recorded).filter(recorded.inside(recorded.kernels))
    stream = rows.filter(entry=Entry.COMPUTE).group_by("stream").agg(pl.col("ns").sum()).sort("ns")["stream"]
    main = stream[-1] if len(stream) else None
    rows = rows.with_columns(alone=pl.col("stream").eq_missing(pl.lit(main)))
    return rows.with_columns(_described(recorded, rows))


def shaped(recorded: Recorded) -> pl.DataFrame:
    """Return the compute kernels of the attribution phase that ops launched, with shapes, path and source."""
    launched = pl.col("op") >= 0  # the burst's last step has none
    rows = _with_ops(recorded).filter(launched, phase="attribution", entry=Entry.COMPUTE)
    return rows.with_columns(_described(recorded, rows))


def _with_ops(recorded: Recorded) -> pl.DataFrame:
    op, owner = recorded.links.op, recorded.links.owner
    owner = np.where(owner >= 0, owner, op)
    return timed(recorded).with_columns(op=pl.Series(op), owner=pl.Series(owner))


def _described(recorded: Recorded, rows: pl.DataFrame) -> list[pl.Series]:
    paths, ops = recorded.paths, recorded.ops
    launched, owners = rows["op"].to_list(), rows["owner"].to_list()
    at = pl.Series([owner if owner >= 0 else None for owner in owners], dtype=pl.Int64)
    nearest = [op if op >= 0 else owner for op, owner in zip(launched, owners, strict=True)]
    both = [paths.names(row) or paths.names(owner) for row, owner in zip(nearest, owners, strict=True)]
    marks = [paths.marks(what, rows["owner"].to_numpy()) for what in ("module", "source", "ran")]
    shapes = [
        ops[name].gather(at) if ops.height else pl.Series(name, [None] * len(owners), pl.String)
        for name in ("shapes", "dtypes")
    ]
    marks.append(paths.marks("region", np.array(nearest, np.int64)))
    return [_lists("path", both), *shapes, *marks]


def _lists(name: str, values: list[tuple[str, ...]]) -> pl.Series:
    """A column of lists; each distinct list is built once, since lists are slow to build."""
    code = {value: i for i, value in enumerate(dict.fromkeys(values))}
    made = pl.Series(name, [list(value) for value in code], pl.List(pl.String))
    return made.gather(pl.Series([code[value] for value in values], dtype=pl.Int64))


@signal("kernels.median_us", "µs")
def median_us(recorded: Recorded) -> float | None:
    """Median kernel duration."""
    rows = recorded.kernels.filter(recorded.inside(recorded.kernels)).filter(pl.col("kind") == "compute")
    median = (rows["end_ns"] - rows["start_ns"]).median()
    return None if median is None else float(median) / NS_PER_US  # type: ignore[arg-type]


@signal("kernels.count", "per step")
def count(recorded: Recorded) -> float:
    """Kernels and copies per step."""
    return float(recorded.inside(recorded.kernels).sum()) / recorded.steps


@signal("kernels.ceilings", "FLOP/s or B/s")
def ceilings(recorded: Recorded) -> dict[str, float]:
    """Measured rates by name: `matmul.bf16`, `memory`, `cache`, and copies by direction."""
    limits = limits_of(recorded.machine, recorded.index)
    if limits is None:
        raise UnknownSignalError(
            "the ceilings of the recorded machine were not measured; run `fathom machine measure` on it"
        )
    memory = {"memory": limits.memory, "cache": limits.cache}
    known = {name: rate for name, rate in memory.items() if rate is not None}
    return {**limits.arithmetic, **limits.copies, **known}


@signal("kernels.counted", "ms per step")
def counted(recorded: Recorded) -> list[Family]:
    """Return kernel families with their hardware counters, without SMALL ones."""
    device, folding = recorded.device, counters_of(recorded.store, recorded.account.rank)
    least_ms = SMALL * min(sum(row.ms for row in device.ledger), device.total_ms or 0.0)
    portraits = device_portraits(recorded.store, device, recorded.machine, folding, least_ms)
    return [_family(portrait) for portrait in portraits if portrait.entry == Entry.COMPUTE]


def _family(portrait: Portrait) -> Family:
    measures = {measure.name: measure.value for measure in portrait.measures}
    return Family(portrait.family, portrait.ms, portrait.bound, portrait.used, measures)
