"""The signal of generation without a cache: passes over a sequence that is one token longer each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import prod

import polars as pl

from fathom.analysis import CPU
from fathom.analysis.entries import Entry
from fathom.analysis.work import with_own_time
from fathom.diagnosis.signals.kernels import shaped
from fathom.diagnosis.signals.kernels import work as device_work
from fathom.diagnosis.signals.operations import in_ledger
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Prefix, Work
from fathom.diagnosis.signals.shapes import shapes_of
from fathom.diagnosis.signals.value import most_common, signal

PRODUCTS = ["aten::linear", "aten::addmm", "aten::mm"]
LEAST = 8  # passes that are one token longer than the one before
NEARLY_ALL = 0.8  # of the passes: a new prompt begins again
TRAINING = "train"


@signal("generation.prefix")
def prefix(recorded: Recorded) -> list[Prefix]:
    """Return the passes of the step's only sequence; empty if it does not grow by one token."""
    if recorded.step.kind == TRAINING:
        return []
    ops = recorded.ops.filter(kind="op", phase="attribution").filter(pl.col("shapes").is_not_null())
    if ops.is_empty():
        raise UnknownSignalError("shapes were not recorded")
    calls = ops.filter(pl.col("name").is_in(PRODUCTS)).sort("start_ns")["shapes"]
    rows = [prod(size[0][:-1]) for size in map(shapes_of, calls) if size and len(size[0]) > 1]
    between, within = _between_steps(recorded, rows), _within_step(rows)
    passes = between or within
    if passes is None:
        return []
    if recorded.device.device == CPU:
        works: Iterable[Work] = _on_processor(recorded, ops)
    else:
        works = _of_lengths(recorded) if between else device_work(recorded)
    return [Prefix(*passes, list(works), within=between is None)]


def _between_steps(recorded: Recorded, rows: list[int]) -> tuple[list[int], int] | None:
    """Return the lengths of the steps, and their samples, if products take all ids of a step."""
    steps = recorded.rows("steps").filter(kind=recorded.step.kind).filter(pl.col("query") > 1)
    known = steps.sort("step").select("step", "query", "samples", "phase").collect()
    last = known.select(
        longer=(pl.col("step").diff() == 1) & (pl.col("query").diff() == 1),
        follows=pl.col("step").diff() == 1,
    )
    grown, pairs = int(last["longer"].sum()), int(last["follows"].sum())
    samples = most_common(known["samples"].cast(pl.String))
    if grown < LEAST or grown < NEARLY_ALL * pairs or samples is None:
        return None
    lengths = known.filter(phase="attribution")["query"].to_list()
    every = {int(samples) * length for length in lengths}
    return (lengths, int(samples)) if every and every <= set(rows) else None


def _within_step(rows: list[int]) -> tuple[list[int], int] | None:
    """Return the lengths of the passes in a step, and their samples, if products grow by a row per sample."""
    counts = Counter(rows)
    several = [count for count in counts if counts[count] > 1]
    more = [b - a for a, b in pairwise(sorted(several))]
    samples = max(more, key=more.count, default=0)
    grown = [b for a, b in pairwise(sorted(several)) if b - a == samples]
    if samples < 1 or len(grown) < max(LEAST, NEARLY_ALL * len(more)):
        return None
    passes = [grown[0] - samples, *grown]
    in_order = [count for count in several if count in passes] == passes
    lengths = [count // samples for count in passes]
    return (lengths, samples) if in_order and lengths[0] > 1 and passes[0] % samples == 0 else None


def _of_lengths(recorded: Recorded) -> Iterator[Work]:
    """Yield device work by op and shapes: the ledger's compute, shared out as in the steps with shapes.

    Each step has its own length, so those of the ledger have other shapes, and often other kernels.
    """
    rows = shaped(recorded)
    scale = sum(row.ms for row in recorded.ledger if row.entry == Entry.COMPUTE) / max(
        int(rows["ns"].sum()), 1
    )
    steps = recorded.rows("steps").filter(phase="attribution", kind=recorded.step.kind)
    count = max(steps.select("step").unique().collect().height, 1)
    keys = ["path", "shapes", "dtypes", "source", "module"]
    groups = rows.group_by(keys, maintain_order=True).agg(pl.len(), pl.col("ran").first(), pl.col("ns").sum())
    for path, shapes, dtypes, source, module, calls, ran, ns in groups.iter_rows():
        of = (scale * ns, calls / count, tuple(path), shapes, dtypes)
        yield Work(Entry.COMPUTE, "", *of, source=source, module=module, ran=ran)


def _on_processor(recorded: Recorded, ops: pl.DataFrame) -> Iterator[Work]:
    """Return a processor's rows by op and shapes, with their calls per step."""
    counts = {row.detail: row.count or 0.0 for row in recorded.ledger if row.entry == Entry.OPS}
    groups = with_own_time(ops).group_by("name", "shapes", maintain_order=True)
    own, ran = pl.col("took").sum(), pl.col("ran").first()
    rows = groups.agg(pl.len(), pl.col("dtypes").first(), ns=own, source=ran, path=pl.col("name").first())
    all_calls = pl.col("name").replace_strict(counts, default=0.0, return_dtype=pl.Float64)
    calls = all_calls * pl.col("len") / pl.col("len").sum().over("name")
    return in_ledger(recorded, rows.with_columns(pl.concat_list("path"), count=calls))
