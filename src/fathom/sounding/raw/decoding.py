"""Prefill and decode of a program that does not say so: told by the ids that its calls were given.

A call of a model with one id a sample that follows another such call lives on what was kept of those before
it. Where attention was seen to read as many positions as the call was given, that is prefill and decode;
where none was seen, the steps are only known to differ.
"""

from __future__ import annotations

import json

import polars as pl

UNTOLD = "inference"
NAMES = {True: ("decode", "prefill"), False: ("inference of one", "inference of many")}
LEAST = 2  # steps of each: one alone may be a warm-up
_ATTENDING = r"scaled_dot_product|flash_attn|attention|softmax"


def told(steps: pl.DataFrame, ops: pl.DataFrame | None) -> pl.DataFrame:
    """`steps`, which have a column `query` (ids a sample), with the kinds of those of kind `inference`.

    `ops` are those whose shapes were recorded. Tokens are counted where a matrix of ids is known to be such.
    """
    mine = (pl.col("kind") == UNTOLD) & pl.col("query").is_not_null()
    asked = steps.filter(mine, pl.col("parent").is_null()).sort("step")
    if not _both(asked):
        return steps
    attends = ops is not None and _attends(asked, ops)
    one, many = NAMES[attends]
    kind = pl.when(pl.col("query") == 1).then(pl.lit(one)).otherwise(pl.lit(many))
    tokens = pl.coalesce("tokens", pl.col("samples") * pl.col("query")) if attends else pl.col("tokens")
    return steps.with_columns(
        kind=pl.when(mine).then(kind).otherwise("kind"), tokens=pl.when(mine).then(tokens).otherwise("tokens")
    )


def _both(asked: pl.DataFrame) -> bool:
    """Whether steps with one id follow each other, and others have many."""
    one = asked["query"] == 1
    again = one & one.shift(1) & (asked["step"].diff() == 1)
    return (again.sum() or 0) >= LEAST and int((~one).sum()) >= LEAST


def _attends(asked: pl.DataFrame, ops: pl.DataFrame) -> bool:
    """Whether attention in one of these steps had as many queries as the step was given ids."""
    shaped = ops.filter(pl.col("name").str.contains(_ATTENDING), pl.col("shapes").is_not_null())
    asked = asked.select("mark_ns", "end_ns", "query").sort("mark_ns")
    within = shaped.sort("start_ns").join_asof(asked, left_on="start_ns", right_on="mark_ns")
    within = within.filter(pl.col("start_ns") < pl.col("end_ns_right")).select("name", "shapes", "query")
    return any(_matches(*row) for row in within.unique().iter_rows())


def _matches(name: str, shapes: str, query: int) -> bool:
    """Whether the op's first inputs are queries and keys, or scores, in four dimensions, of so many queries.

    Heads stand before or after positions. Of one query more than one key is wanted: it attends to others.
    """
    try:
        read = json.loads(shapes)
    except ValueError:
        return False
    found = [shape for shape in read if isinstance(shape, list)] if isinstance(read, list) else []
    if "softmax" in name:
        return bool(found) and len(found[0]) == 4 and found[0][2] == query and found[0][3] > 1
    if len(found) < 2 or len(found[0]) != 4 or len(found[1]) != 4:
        return False
    return any(found[0][axis] == query <= found[1][axis] > 1 for axis in (1, 2))
