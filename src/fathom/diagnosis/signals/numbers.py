"""Signals of sizes: the matmuls of a step, and runs of small ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from fathom.analysis.entries import Entry
from fathom.diagnosis.signals.kernels import combined, launched, work
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Kernel, Product, Work
from fathom.diagnosis.signals.value import signal

Sizes = list[list[int]]
AIDE = re.compile(r"splitK_?reduce", re.IGNORECASE)  # ends a product that was split along its depth
DTYPES = {
    "c10::BFloat16": "bf16",
    "c10::Half": "fp16",
    "float": "fp32",
    "double": "fp64",
    "BFloat16": "bf16",
    "Half": "fp16",
    "Float": "fp32",
    "Double": "fp64",
}
SHORTEST = 8  # of one shape
KINDS = 2  # of shapes: a backward pass alternates between inputs' and weights' gradients


def _product(sizes: Sizes, rank: int, first: int = 0) -> tuple[int, int, int, int] | None:
    """Return rows, columns, terms and batch of the matmul of two tensors of this rank, from `first` on."""
    if len(sizes) < first + 2:
        return None
    a, b = sizes[first], sizes[first + 1]
    if len(a) != rank or len(b) != rank or a[-1] != b[-2]:
        return None
    return a[-2], b[-1], a[-1], a[0] if rank == 3 else 1


def _linear(sizes: Sizes) -> tuple[int, int, int, int] | None:
    if len(sizes) < 2 or not sizes[0] or len(sizes[1]) != 2 or sizes[0][-1] != sizes[1][1]:
        return None
    rows = 1
    for size in sizes[0][:-1]:
        rows *= size
    return rows, sizes[1][0], sizes[1][1], 1


FORMS: dict[str, Callable[[Sizes], tuple[int, int, int, int] | None]] = {
    "aten::mm": lambda sizes: _product(sizes, 2),
    "aten::addmm": lambda sizes: _product(sizes, 2, 1),
    "aten::bmm": lambda sizes: _product(sizes, 3),
    "aten::baddbmm": lambda sizes: _product(sizes, 3, 1),
    "aten::linear": _linear,
}


def product_of(work: Work) -> Product | None:
    """Return the matmul that this work computed; None without shapes, or if it prepares or ends one."""
    if work.entry != Entry.COMPUTE or AIDE.search(work.family):
        return None
    form = next((FORMS[name] for name in reversed(work.ops) if name in FORMS), None)
    sizes = form(work.sizes) if form else None
    dtype = next((DTYPES[name] for name in work.types if name in DTYPES), None)
    return Product(*sizes, dtype, work) if sizes and dtype else None


@signal("numbers.products", "ms per step")
def products(recorded: Recorded) -> list[Product]:
    """Return matmuls with recorded sizes, longest first. Raises UnknownSignalError without shapes."""
    works = work(recorded)
    if not any(work.shapes for work in works):
        raise UnknownSignalError("shapes were not recorded")
    return [product for work in works if (product := product_of(work))]


@signal("kernels.product_runs", "ms per step")
def product_runs(recorded: Recorded) -> list[Product]:
    """Return the matmuls of these runs by shape and op, with the `count` and `ms` of the runs."""
    groups: dict[tuple, list[Kernel]] = {}
    for run in _runs(launched(recorded)):
        for row in run:
            key = (row.label, *row.ops, row.shapes, row.source)
            groups.setdefault(key, []).append(row)
    works = [combined(mine, recorded.steps) for mine in groups.values()]
    return [product for work in works if (product := product_of(work))]


def _runs(rows: list[Kernel]) -> Iterator[list[Kernel]]:
    """Return runs of at most KINDS shapes, each at least SHORTEST times; a batched matmul ends a run."""
    run: list[Kernel] = []
    shapes: dict[tuple, int] = {}
    for row in rows:
        if AIDE.search(row.label):
            continue
        key = _shape(row)
        if key is None or (key not in shapes and len(shapes) == KINDS):
            yield from _long(run, shapes)
            run, shapes = [], {}
        if key is not None:
            run.append(row)
            shapes[key] = shapes.get(key, 0) + 1
    yield from _long(run, shapes)


def _long(run: list[Kernel], shapes: dict[tuple, int]) -> Iterator[list[Kernel]]:
    if max(shapes.values(), default=0) < SHORTEST:
        return
    kept = [row for row in run if shapes[_shape(row) or ()] >= SHORTEST]
    if kept:
        yield kept


def _shape(row: Kernel) -> tuple | None:
    """Return the key of matmuls that could form one batch; None for anything but a single matmul."""
    alone = _is_single(tuple(row.ops), row.shapes, row.dtypes)
    return (row.ops[0], row.shapes, row.dtypes) if alone else None


@lru_cache(1 << 14)
def _is_single(path: tuple[str, ...], shapes: str | None, dtypes: str | None) -> bool:
    product = product_of(Work(Entry.COMPUTE, "", 0.0, 1, path, shapes, dtypes))
    return product is not None and product.batch == 1
