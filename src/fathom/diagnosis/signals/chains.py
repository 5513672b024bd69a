"""Casts that are undone, and runs of elementwise kernels that each read the output of the previous one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from math import prod

from fathom.analysis.work import DTYPES, SIZE
from fathom.diagnosis.signals.kernels import combined, launched
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Chain, Kernel, Work
from fathom.diagnosis.signals.shapes import dtypes_of, lists_of, shapes_of
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

FUSIBLE = re.compile(r"elementwise_kernel")
JOINED = re.compile(r"CatArrayBatchedCopy")
PARTS = (1, 2, 4)  # divisors of the chain's size within one function: rotated halves that are joined again
REDUCED = re.compile(
    r"aten::(mean|var|var_mean|std|amax|logsumexp|_softmax|_log_softmax)$"
)  # over the last dimension
SHORTEST = 3
LEAST = 1 << 16  # elements: smaller tensors stay in the cache, and only cost their launch
SEPARATE = re.compile(r"Optimizer\.|AccumulateGrad|aten::(copy_|fill_|zero_)$")  # not of a chain that fuses
CAST = ["aten::_to_copy", "aten::copy_"]  # the last ops of its path
WIDE_INSIDE = re.compile(
    r"aten::(native_(layer|group)_norm|_fused_rms_norm|_?(log_)?softmax|gelu|silu|relu)\b"
)


@signal("kernels.chains", "ms per step")
def chains(recorded: Recorded) -> list[Chain]:
    """Return chains by their ops and their place, costliest first. Needs shapes."""
    groups: dict[tuple, list[list[Kernel]]] = {}
    for run in _runs(*undone(recorded)):
        key = (tuple(row.ops[-1] for row in run), _numel(run[0]), run[0].source)
        groups.setdefault(key, []).append(run)
    made = [_made(key, runs, recorded.steps) for key, runs in groups.items()]
    return sorted(made, key=lambda chain: -chain.saved_ms)


def _runs(rows: list[Kernel], casts: list[Kernel]) -> Iterator[list[Kernel]]:
    """Yield adjacent elementwise kernels of a step over equally many elements, with casts between them.

    `casts` are the rows of casts that are undone immediately.
    """
    run: list[Kernel] = []
    away = {id(row) for row in casts}
    for row in rows:
        if id(row) in away:
            continue
        fusible = _fusible(row)
        if not (fusible and run and _joins(row, run[0])):
            if _chain(run):
                yield run
            run = []
        if fusible:
            run.append(row)
    if _chain(run):
        yield run


def _chain(run: list[Kernel]) -> bool:
    """Return whether a run is a chain. Two kernels may be adjacent by chance, and casts compute nothing."""
    return len(run) >= SHORTEST and not all(map(cast_of, run))


def _fusible(row: Kernel) -> bool:
    return (
        _numel(row) >= LEAST
        and bool(row.ops)
        and (FUSIBLE.search(row.label) or REDUCED.search(row.ops[-1]) or _joined(row)) is not None
        and (cast_of(row) is not None or SEPARATE.search(row.path) is None)
    )


def _joined(row: Kernel) -> re.Match[str] | None:
    return None if row.ops[0].startswith("autograd::") else JOINED.search(row.label)


def _joins(row: Kernel, first: Kernel) -> bool:
    """Return whether a kernel of the same step has as many elements as the run or, in the same function, a
    part of them.
    """
    if row.window != first.window:
        return False
    parts = PARTS if row.source and row.source == first.source else PARTS[:1]
    return any(_numel(row) * part == _numel(first) for part in parts)


def _numel(row: Kernel) -> int:
    return _size(row.shapes)[0]


@lru_cache(1 << 14)
def _size(text: str | None) -> tuple[int, int]:
    """Return the elements of the largest input (of all inputs if concatenated), and its last dimension."""
    listed = lists_of(text)
    if listed:
        return sum(prod(sizes) for sizes in listed if sizes), listed[0][-1] if listed[0] else 0
    largest = max(shapes_of(text), key=lambda sizes: prod(sizes) if sizes else 0, default=[])
    return (prod(largest), largest[-1]) if largest else (0, 0)


def _made(key: tuple, runs: list[list[Kernel]], steps: int) -> Chain:
    """Return the time that a fused kernel saves: all but the longest part, which moves as many bytes."""
    saved: dict[str, float] = {}
    for run in runs:
        longest = max(row.ns for row in run)
        part = 1 - longest / (sum(row.ns for row in run) or 1)
        for row in run:
            saved[row.label] = saved.get(row.label, 0.0) + part * row.ns / steps / NS_PER_MS
    total = sum(row.ns for run in runs for row in run) / steps / NS_PER_MS
    first = runs[0][0]
    backward = any(name.startswith("autograd::") for name in first.ops)
    numel, last = _size(first.shapes)
    return Chain(key[0], total, saved, len(runs) / steps, numel, last, first.source, first.module, backward)


@signal("kernels.round_trips", "ms per step")
def round_trips(recorded: Recorded) -> list[Work]:
    """Return pairs of casts: one directly after the other, or around an op that is as exact without them."""
    groups: dict[tuple, list[Kernel]] = {}
    for row in undone(recorded)[1]:
        groups.setdefault((row.label, *row.ops, row.source), []).append(row)
    return [combined(mine, recorded.steps) for mine in groups.values()]


@signal("kernels.undone")
def undone(recorded: Recorded) -> tuple[list[Kernel], list[Kernel]]:
    """Return the main stream's kernels in order, and the undone casts among them."""
    rows = launched(recorded)
    return rows, needless(rows)


def needless(rows: list[Kernel]) -> list[Kernel]:
    """Return the undone casts among the ordered rows of one stream."""
    kept: list[Kernel] = []
    casts = [cast_of(row) for row in rows]
    place = 0
    while place < len(rows):
        back = _back(rows, casts, place)
        kept += [rows[place], rows[back]] if back else []
        place = back + 1 if back else place + 1
    return kept


def _back(rows: list[Kernel], casts: list[tuple | None], place: int) -> int:
    """Return the index at which the cast at `place` is undone; 0 if it is not."""
    cast = casts[place]
    if cast is None or SIZE[cast[1]] <= SIZE[cast[0]]:
        return 0
    undone = (cast[1], cast[0], cast[2])
    if casts[place + 1 : place + 2] == [undone]:
        return place + 1
    inside = place + 2 < len(rows) and WIDE_INSIDE.search(rows[place + 1].path)
    return place + 2 if inside and casts[place + 2] == undone else 0


def cast_of(row: Kernel) -> tuple[str, str, tuple[int, ...]] | None:
    """Return source dtype, target dtype and shape of a cast between floating-point dtypes, else None."""
    return _cast(row.shapes, row.dtypes) if list(row.ops[-2:]) == CAST else None


@lru_cache(1 << 14)
def _cast(shapes: str | None, dtypes: str | None) -> tuple[str, str, tuple[int, ...]] | None:
    types, sizes = dtypes_of(dtypes), shapes_of(shapes)
    if len(types) < 2 or len(sizes) < 2 or sizes[0] != sizes[1]:
        return None
    to, of = (DTYPES.get(name, "") for name in types[:2])
    floats = to != of and all(name.startswith(("fp", "bf")) for name in (to, of))
    return (of, to, tuple(sizes[0])) if floats else None
