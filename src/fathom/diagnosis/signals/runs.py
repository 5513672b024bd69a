"""Runs of consecutive small products that do not depend on each other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from fathom.analysis.entries import Entry
from fathom.diagnosis.signals.kernels import combined, row_dicts
from fathom.diagnosis.signals.numbers import AIDE, product_of
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Product, Work
from fathom.diagnosis.signals.value import signal

SHORTEST = 8  # of one shape
KINDS = 2  # of shapes: a backward pass alternates between inputs' and weights' gradients

Row = dict[str, Any]


@signal("kernels.product_runs", "ms per step")
def product_runs(recorded: Recorded) -> list[Product]:
    """Products of these runs, by shape and op; `count` and `ms` of their work are those of the runs."""
    groups: dict[tuple, list[Row]] = {}
    for run in _runs(row_dicts(recorded)):
        for row in run:
            key = (row["label"], *row["path"], row["shapes"], row["source"])
            groups.setdefault(key, []).append(row)
    works = [combined(mine, recorded.steps) for mine in groups.values()]
    return [product for work in works if (product := product_of(work))]


def _runs(rows: list[Row]) -> Iterator[list[Row]]:
    """Runs of at most KINDS shapes, each at least SHORTEST times; a batched product ends a run."""
    run: list[Row] = []
    shapes: dict[tuple, int] = {}
    for row in rows:
        if AIDE.search(row["label"]):
            continue
        key = _shape(row)
        if key is None or (key not in shapes and len(shapes) == KINDS):
            yield from _long(run, shapes)
            run, shapes = [], {}
        if key is not None:
            run.append(row)
            shapes[key] = shapes.get(key, 0) + 1
    yield from _long(run, shapes)


def _long(run: list[Row], shapes: dict[tuple, int]) -> Iterator[list[Row]]:
    if max(shapes.values(), default=0) < SHORTEST:
        return
    kept = [row for row in run if shapes[_shape(row) or ()] >= SHORTEST]
    if kept:
        yield kept


def _shape(row: Row) -> tuple | None:
    """The key of products that could form one batch; None for anything but a single product."""
    alone = _is_single(tuple(row["path"]), row["shapes"], row["dtypes"])
    return (row["path"][0], row["shapes"], row["dtypes"]) if alone else None


@lru_cache(1 << 14)
def _is_single(path: tuple[str, ...], shapes: str | None, dtypes: str | None) -> bool:
    product = product_of(Work(Entry.COMPUTE, "", 0.0, 1, path, shapes, dtypes))
    return product is not None and product.batch == 1
