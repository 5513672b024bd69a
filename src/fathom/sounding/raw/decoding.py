"""Detect prefill and decode from the number of token ids that each call of a model got.

Consecutive calls with one id per sample use the cached state of earlier calls. If attention had as many
queries as the call had ids, the kinds are prefill and decode. Otherwise the steps are only known to differ.
"""

from __future__ import annotations

import json

import polars as pl

UNCLASSIFIED = "inference"
NAMES = {True: ("decode", "prefill"), False: ("inference of one", "inference of many")}
LEAST = 2  # steps of each kind: a single one may be a warm-up
_ATTENDING = r"scaled_dot_product|flash_attn|attention|softmax"


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
    asked = asked.select("mark_ns", "end_ns", "query").sort("mark_ns")
    within = shaped.sort("start_ns").join_asof(asked, left_on="start_ns", right_on="mark_ns")
    within = within.filter(pl.col("start_ns") < pl.col("end_ns_right")).select("name", "shapes", "query")
    return any(_matches(*row) for row in within.unique().iter_rows())


def _matches(name: str, shapes: str, query: int) -> bool:
    """Return whether the op's inputs (queries and keys, or scores, in 4 dimensions) have `query` queries.

    Heads may come before or after positions. There must be more than one key.
    """
    try:
        read = json.loads(shapes)
    except ValueError:
        return False
    known = [shape for shape in read if isinstance(shape, list)] if isinstance(read, list) else []
    if "softmax" in name:
        return bool(known) and len(known[0]) == 4 and known[0][2] == query and known[0][3] > 1
    if len(known) < 2 or len(known[0]) != 4 or len(known[1]) != 4:
        return False
    return any(known[0][axis] == query <= known[1][axis] > 1 for axis in (1, 2))
