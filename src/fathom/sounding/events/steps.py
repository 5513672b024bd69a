"""Find the marks and steps that a trace contains."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.errors import BadInputError
from fathom.sounding.naming import meant
from fathom.sounding.schema import conform, empty

MARK = "fathom.mark#"
STEP = "ProfilerStep#"
# Annotations of vLLM's worker (annotate_profile): requests and, in parentheses, tokens of prefill and decode.
# Some releases put the tokens of both in front, and other figures in the parentheses.
ITERATION = r"^execute_(?:(\d+)_)?context_(\d+)\((\w*)\)_generation_(\d+)\((\w*)\)$"
NOTES = (MARK, STEP, "execute_")  # prefixes of the names of marks and steps
RANGE = "range"  # source of steps that are ranges of the program, with or without a number in their name
# Names of ranges around a step: step, train_step, "Training step 12", iteration 3/10. A number may follow.
_STEP_RANGE = r"(?i)^(?:[\w./]+[ _.:/-])?(?:step|iteration|iter)(?:[ _:#=/.-]*\d+(?:/\d+)?)?$"
_NUMBER = r"[ _:#=/.-]*\d+(?:/\d+)?$"
_MOST_NAMED = 5  # names of ranges in an error message
_FIELDS = ("both", "reads", "read", "generates", "generated")


def marks(ops: pl.DataFrame) -> pl.DataFrame:
    """Return the probe's annotations, ordered by time: `k` (step), `ns` and `thread`."""
    numbered = ops.select(k=_numbered(MARK), ns="start_ns", thread="thread")
    return numbered.drop_nulls("k").sort("ns")


def profiler_steps(ops: pl.DataFrame, phase: str, burst: int) -> pl.DataFrame:
    """Return the `steps` table: a row per ProfilerStep, or without any, per iteration of a serving engine.

    A step ends where the next begins; the last one ends where its annotation ends.
    """
    numbered = ops.with_columns(step=_numbered(STEP), kind=pl.lit("step"), source=pl.lit("profiler"))
    ordered = numbered.drop_nulls("step").sort("start_ns")
    ordered = ordered.with_columns(tokens=pl.lit(None, pl.Int64)) if ordered.height else _iterations(ops)
    rows = ordered.select(
        "step",
        "thread",
        "kind",
        "source",
        "tokens",
        mark_ns="start_ns",
        end_ns=pl.col("start_ns").shift(-1).over("thread").fill_null(pl.col("end_ns")),
        phase=pl.lit(phase),
        burst=pl.lit(burst),
    )
    return conform("steps", rows)


def _iterations(ops: pl.DataFrame) -> pl.DataFrame:
    """Return the iterations of vLLM, of the kinds `prefill`, `decode` and `mixed`."""
    fields = [
        pl.col("name").str.extract(ITERATION, group).alias(name) for group, name in enumerate(_FIELDS, 1)
    ]
    ordered = ops.with_columns(fields).drop_nulls("reads").sort("start_ns")
    numbers = ordered.with_columns(pl.col(_FIELDS).str.extract(r"^(\d+)(?:_|$)").cast(pl.Int64, strict=False))
    return numbers.with_columns(
        step=pl.int_range(pl.len(), dtype=pl.Int64),
        kind=pl.when(generates=0).then(pl.lit("prefill")).when(reads=0).then(pl.lit("decode"))
        .otherwise(pl.lit("mixed")),
        source=pl.lit("engine"),
        tokens=pl.coalesce("both", pl.col("read") + pl.col("generated")),
    )  # fmt: skip


def _numbered(prefix: str) -> pl.Expr:
    return pl.col("name").str.extract(rf"^{prefix}(\d+)$").cast(pl.Int64, strict=False)


def steps_from_ranges(ops: pl.DataFrame, wanted: str | None = None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the `steps` table that ranges in `ops` show, and the ops without these ranges.

    With `wanted`, they are the outermost ranges whose names match it. Else they are the profiler's steps, the
    iterations of a serving engine, or ranges named like steps that occur at least twice on one thread.
    Raises BadInputError if `wanted` matches nothing.
    """
    numbered = profiler_steps(ops, "timeline", 0)
    if wanted is None and len(numbered):
        notes = pl.any_horizontal(pl.col("name").str.starts_with(prefix) for prefix in NOTES)
        return numbered, ops.filter(~notes)
    rows = ops.with_row_index("row").select("row", "thread", "name", "start_ns", "end_ns")
    chosen = _matching(rows, wanted) if wanted else _likely(rows)
    if chosen.is_empty():
        return empty("steps"), ops
    return _tiling(chosen), ops.filter(~pl.int_range(pl.len()).is_in(chosen["row"].implode()))


def _matching(ranges: pl.DataFrame, wanted: str) -> pl.DataFrame:
    """Return the outermost ranges whose names match `wanted`, on the thread on which they take most time."""
    names = ranges["name"].unique().to_list()
    chosen = ranges.filter(pl.col("name").is_in(meant(wanted, names)))
    if chosen.is_empty():
        common = ranges["name"].value_counts(sort=True)["name"][:_MOST_NAMED].to_list()
        known = f"the most frequent ones are {', '.join(common)}" if common else "it has no ranges"
        raise BadInputError(f"No range has a name like '{wanted}'; {known}.")
    return max(_outermost_by(chosen, "thread"), key=_length)


def _likely(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the ranges that are named like steps; of several kinds, those that take most time."""
    kinds = pl.col("name").str.replace(_NUMBER, "").alias("kind")
    named = ranges.filter(pl.col("name").str.contains(_STEP_RANGE)).with_columns(kinds)
    repeated = [rows for rows in _outermost_by(named, "thread", "kind") if len(rows) > 1]
    return max(repeated, key=_length, default=named.clear())


def _outermost_by(ranges: pl.DataFrame, *keys: str) -> list[pl.DataFrame]:
    groups = ranges.sort("start_ns", maintain_order=True).partition_by(keys, maintain_order=True)
    return [_outermost(group) for group in groups]


def _outermost(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the ranges, sorted by start, that begin after every earlier one has ended."""
    ended = pl.col("end_ns").cum_max().shift(1)
    return ranges.filter((pl.col("start_ns") >= ended).fill_null(True))


def _length(ranges: pl.DataFrame) -> int:
    return int((ranges["end_ns"] - ranges["start_ns"]).sum())


def _tiling(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return ranges as steps that end where the next begins; ascending numbers in their names are kept."""
    numbers = ranges["name"].str.extract(r"(\d+)(?:/\d+)?$").cast(pl.Int64, strict=False)
    kept = numbers.null_count() == 0 and bool((np.diff(numbers.to_numpy()) > 0).all())
    rows = ranges.select(
        "thread",
        step=numbers if kept else pl.int_range(pl.len()),
        kind=pl.lit("step"),
        source=pl.lit(RANGE),
        mark_ns="start_ns",
        end_ns=pl.col("start_ns").shift(-1).fill_null(pl.col("end_ns")),
        phase=pl.lit("timeline"),
        burst=pl.lit(0),
    )
    return conform("steps", rows)
