"""Find the marks and steps that a trace contains."""

from __future__ import annotations

import polars as pl

from fathom.sounding.schema import conform

MARK = "fathom.mark#"
STEP = "ProfilerStep#"
# Annotations of vLLM's worker (annotate_profile): requests and, in parentheses, tokens of prefill and decode.
# Some releases put the tokens of both in front, and other figures in the parentheses.
ITERATION = r"^execute_(?:(\d+)_)?context_(\d+)\((\w*)\)_generation_(\d+)\((\w*)\)$"
NOTES = (MARK, STEP, "execute_")  # prefixes of the names of marks and steps
_FIELDS = ("both", "reads", "read", "generates", "generated")


def marks(ops: pl.DataFrame) -> pl.DataFrame:
    """Return the probe's annotations, ordered by time: `k` (step), `ns` and `thread`."""
    numbered = ops.select(k=_number(MARK), ns="start_ns", thread="thread")
    return numbered.drop_nulls("k").sort("ns")


def profiler_steps(ops: pl.DataFrame, phase: str, burst: int) -> pl.DataFrame:
    """Return the `steps` table: a row per ProfilerStep, or without any, per iteration of a serving engine.

    A step ends where the next begins; the last one ends where its annotation ends.
    """
    numbered = ops.with_columns(step=_number(STEP), kind=pl.lit("step"), source=pl.lit("profiler"))
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
    """Return the iterations of vLLM, of the kinds `prefill`, `decode` and `prefill and decode`."""
    fields = [
        pl.col("name").str.extract(ITERATION, group).alias(name) for group, name in enumerate(_FIELDS, 1)
    ]
    ordered = ops.with_columns(fields).drop_nulls("reads").sort("start_ns")
    numbers = ordered.with_columns(pl.col(_FIELDS).str.extract(r"^(\d+)(?:_|$)").cast(pl.Int64, strict=False))
    return numbers.with_columns(
        step=pl.int_range(pl.len(), dtype=pl.Int64),
        kind=pl.when(generates=0).then(pl.lit("prefill")).when(reads=0).then(pl.lit("decode"))
        .otherwise(pl.lit("prefill and decode")),
        source=pl.lit("engine"),
        tokens=pl.coalesce("both", pl.col("read") + pl.col("generated")),
    )  # fmt: skip


def _number(prefix: str) -> pl.Expr:
    return pl.col("name").str.extract(rf"^{prefix}(\d+)$").cast(pl.Int64, strict=False)
