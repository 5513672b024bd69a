"""Build the `steps` table from marks: one row per step whose start and end are known.

Prefill and decode are detected from the number of token ids that each call of a model got. Consecutive calls
with one id per sample use the cached state of earlier calls. If attention had as many queries as the call had
ids, the kinds are prefill and decode. Otherwise the steps are only known to differ.
"""

from __future__ import annotations

import json
from statistics import median

import polars as pl

from fathom.probe.device_clock import lengths
from fathom.probe.settling import LASTING
from fathom.sounding.raw.folder import Process
from fathom.sounding.schema import TABLES

_MARK = {
    "k": pl.Int64,
    "ns": pl.Int64,
    "source": pl.String,
    "thread": pl.Int64,
    "phase": pl.String,
    "burst": pl.Int32,
    "kind": pl.String,
    "samples": pl.Int64,
    "tokens": pl.Int64,
    "stream": pl.Int64,
    "query": pl.Int64,
}
SUMMARY = "summary"  # the phase of steps that are only counted
WAITS = ("compilation", "checkpoint", "gc", "input")
UNCLASSIFIED = "inference"
NAMES = {True: ("decode", "prefill"), False: ("inference of one", "inference of many")}
LEAST = 2  # steps of each kind: a single one may be a warm-up
_ATTENDING = r"scaled_dot_product|flash_attn|attention|softmax"


def marks(process: Process) -> pl.DataFrame:
    """Return the marks of the final source of steps, ascending: k (step), ns, source, thread, phase …"""
    frame = _frame(process.of("mark"), _MARK)
    kept = frame.filter(pl.col("k") >= first(process)).drop_nulls(["ns", "phase", "burst"])
    return kept.unique("k", keep="last").sort("k")


def summaries(process: Process) -> pl.DataFrame:
    """Return the `summaries` table: a row for each window of counted steps and kind of step."""
    records = [record for record in process.of("summary") if record["k"] >= first(process)]
    rows = [
        {
            "step": record["k"],
            "start_ns": record["start"],
            "end_ns": record["end"],
            **{name: record.get(name) for name in ("source", "thread", "burst")},
            **dict(zip(("kind", "steps", "samples", "tokens"), kind[:4], strict=True)),
            **{f"{cause}_ns": kind[4].get(cause, 0) for cause in WAITS},
            **dict(zip(("shortest_ns", "counts", "totals_ns"), zip(*kind[5], strict=True), strict=False)),
            "phase": SUMMARY,
        }
        for record in records
        for kind in record["kinds"]
    ]
    return pl.DataFrame(rows, schema=TABLES["summaries"], strict=False).sort("start_ns", "kind")


def first(process: Process) -> int:
    """Return the step at which the final source of steps began; earlier records use another source."""
    return process.clock["k"] if process.clock else 0


def settled_at(processes: list[Process]) -> int:
    """Return the step at which the program last settled into another step time; 0 if it never did.

    Earlier records belong to the phase `settle`. The probe decides by the host's marks alone. If device
    events show the same step time before and after, only the host became faster, and the program did not
    settle there. A step after the last timeline does not count either, because the timeline would be lost.
    """
    settled = (k for k in _settlings(processes) if not _unrepeated(processes, k))
    return max(settled, default=0)


def is_of_slower_steps(processes: list[Process]) -> bool:
    """Return whether the program settled after its last timeline, which then shows the slower steps."""
    return any(_unrepeated(processes, k) for k in _settlings(processes))


def _settlings(processes: list[Process]) -> list[int]:
    settlings = []
    for process in processes:
        timed = [length for record in process.of("device") for length in lengths(record.get("marks", []))]
        mine = [record["k"] for record in process.of("resettled") if record["k"] > first(process)]
        settlings += [k for k in mine if not _as_before(timed, k)]
    return settlings


def _unrepeated(processes: list[Process], settled: int) -> bool:
    """Return whether there are timelines and all were recorded before the step `settled`."""
    timelines = [k0 for process in processes for k0 in _timelines(process)]
    return bool(timelines) and max(timelines) < settled


def _timelines(process: Process) -> list[int]:
    """Return the first step of each timeline that uses the final source of steps."""
    timelines = (record["k0"] for record in process.of("trace") if record["phase"] == "timeline")
    return [k0 for k0 in timelines if k0 >= first(process)]


def _as_before(timed: list[tuple[int, float]], settled: int) -> bool:
    """Return whether the device's step time was the same before `settled`; false if it was not timed."""
    before = [length for k, length in timed if k <= settled]
    after = [length for k, length in timed if k > settled]
    return bool(before and after) and median(before) <= (1 + LASTING) * median(after)


def relabelled(marked: pl.DataFrame, settled: int) -> pl.DataFrame:
    """Return `marked` with the phase of steps before `settled` set to settle."""
    return marked.with_columns(
        phase=pl.when(pl.col("k") < settled).then(pl.lit("settle")).otherwise(pl.col("phase"))
    )


def rehearsed(marked: pl.DataFrame, process: Process) -> pl.DataFrame:
    """Return `marked` with the phase of steps in rehearsal bursts set to transition."""
    bursts = [record["burst"] for record in process.of("rehearsal")]
    phase = pl.when(pl.col("burst").is_in(bursts)).then(pl.lit("transition")).otherwise(pl.col("phase"))
    return marked.with_columns(phase=phase)


def micro(process: Process) -> pl.DataFrame:
    """Return the starts of micro-steps: k (their step), ns, source, thread."""
    return _frame(process.of("micro"), {name: _MARK[name] for name in ("k", "ns", "source", "thread")})


def steps(marked: pl.DataFrame, inner: pl.DataFrame, device: pl.DataFrame) -> pl.DataFrame:
    """Return the `steps` table, with times on the host's clock.

    A step is complete if the next mark exists; the mark that ends it has its kind, samples, tokens and query.
    `device` has the columns k and device_ns.
    """
    following = pl.col("k").shift(-1) == pl.col("k") + 1
    complete = marked.join(device, on="k", how="left").with_columns(
        end_ns=pl.when(following).then(pl.col("ns").shift(-1)),
        device_end_ns=pl.when(following).then(pl.col("device_ns").shift(-1)),
        kind=pl.col("kind").shift(-1),
        samples=pl.col("samples").shift(-1),
        tokens=pl.col("tokens").shift(-1),
        query=pl.col("query").shift(-1),
    )
    recorded = complete.filter(pl.col("phase").is_null() | (pl.col("phase") != SUMMARY))
    outer = recorded.filter(pl.col("end_ns").is_not_null()).rename({"k": "step", "ns": "mark_ns"})
    return pl.concat([outer, _micro_steps(outer, inner)], how="diagonal_relaxed").sort("mark_ns", "step")


def _micro_steps(outer: pl.DataFrame, inner: pl.DataFrame) -> pl.DataFrame:
    """Return the micro-steps, numbered like their step; each lasts until the next or the end of its step."""
    ends = outer.select("step", "phase", "burst", close="end_ns")
    return (
        inner.sort("k", "ns")
        .join(ends, left_on="k", right_on="step")
        .with_columns(
            end_ns=pl.col("ns").shift(-1).over("k").fill_null(pl.col("close")),
            step=pl.col("k"),
            parent=pl.col("k"),
            kind=pl.lit("micro-step"),
            mark_ns=pl.col("ns"),
        )
        .drop("k", "ns", "close")
    )


def device_boundaries(process: Process, marked: pl.DataFrame) -> pl.DataFrame:
    """Return k and device_ns: the times of the clean phase's device events on the host's clock.

    Only differences between device events are exact. Their offset is chosen so that no event precedes its
    mark on the host, because the device cannot have reached it earlier.
    """
    rows = [
        {"k": k, "elapsed": elapsed, "burst": record["burst"]}
        for record in process.of("device")
        for k, elapsed in record.get("marks", [])
    ]
    measured = pl.DataFrame(rows, schema={"k": pl.Int64, "elapsed": pl.Int64, "burst": pl.Int32})
    joined = measured.join(marked.select("k", "ns"), on="k")
    offset = (pl.col("ns") - pl.col("elapsed")).max().over("burst")
    return joined.select("k", device_ns=pl.col("elapsed") + offset).unique("k")


def _frame(records: list[dict[str, object]], schema: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    rows = [{name: record.get(name) for name in schema} for record in records]
    return pl.DataFrame(rows, schema=schema, strict=False)


def classified(steps: pl.DataFrame, ops: pl.DataFrame | None) -> pl.DataFrame:
    """Return `steps` with the kind of `inference` steps set by their column `query` (ids per sample).

    `ops` are the recorded ops, with shapes if known. If the kinds are prefill and decode, also sets `tokens`.
    """
    mine = (pl.col("kind") == UNCLASSIFIED) & pl.col("query").is_not_null()
    asked = steps.filter(mine, pl.col("parent").is_null()).sort("step")
    if not _both(asked):
        return steps
    attends = ops is not None and _attends(asked, ops)
    single, many = NAMES[attends]
    kind = pl.when(pl.col("query") == 1).then(pl.lit(single)).otherwise(pl.lit(many))
    tokens = pl.coalesce("tokens", pl.col("samples") * pl.col("query")) if attends else pl.col("tokens")
    return steps.with_columns(
        kind=pl.when(mine).then(kind).otherwise("kind"), tokens=pl.when(mine).then(tokens).otherwise("tokens")
    )


def _both(asked: pl.DataFrame) -> bool:
    """Return whether steps with one id per sample follow each other and other steps have many."""
    single = asked["query"] == 1
    again = single & single.shift(1) & (asked["step"].diff() == 1)
    return (again.sum() or 0) >= LEAST and int((~single).sum()) >= LEAST


def _attends(asked: pl.DataFrame, ops: pl.DataFrame) -> bool:
    """Return whether attention in one of these steps had as many queries as the step had ids."""
    shaped = ops.filter(pl.col("name").str.contains(_ATTENDING), pl.col("shapes").is_not_null())
    asked = asked.select("mark_ns", "end_ns", "query", batch="samples").sort("mark_ns")
    within = shaped.sort("start_ns").join_asof(asked, left_on="start_ns", right_on="mark_ns")
    within = within.filter(pl.col("start_ns") < pl.col("end_ns_right")).select(
        "name", "shapes", "query", "batch"
    )
    return any(_matches(*row) for row in within.unique().iter_rows())


def _matches(name: str, shapes: str, query: int, batch: int | None) -> bool:
    """Return whether the op's inputs (queries and keys, or scores, in 4 dimensions) have `query` queries.

    Heads may come before or after positions. There must be more than one key. Scores of a single query may
    have groups of heads in its place.
    """
    try:
        read = json.loads(shapes)
    except ValueError:
        return False
    known = [shape for shape in read if isinstance(shape, list)] if isinstance(read, list) else []
    if "softmax" in name:
        return bool(known) and _scores(known[0], query, batch)
    if len(known) < 2 or len(known[0]) != 4 or len(known[1]) != 4:
        return False
    return any(known[0][axis] == query <= known[1][axis] > 1 for axis in (1, 2))


def _scores(shape: list[int], query: int, batch: int | None) -> bool:
    """Return whether a softmax of this shape is over keys, for `query` queries in each of `batch` samples."""
    if len(shape) not in (4, 5) or shape[-1] <= 1:
        return False
    grouped = len(shape) == 4 and query == 1 and shape[0] == batch
    return shape[-2] == query or grouped
