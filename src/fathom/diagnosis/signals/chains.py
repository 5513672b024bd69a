"""Runs of elementwise kernels over tensors of one size, each of which reads what the one before it wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Any

from fathom.diagnosis.signals.casts import cast_of, undone
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Chain
from fathom.diagnosis.signals.shapes import lists_of, shapes_of
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


@signal("kernels.chains", "ms per step")
def chains(recorded: Recorded) -> list[Chain]:
    """Chains by their ops and their place, the costliest first. Needs shapes."""
    groups: dict[tuple, list[list[dict[str, Any]]]] = {}
    for run in _runs(*undone(recorded)):
        key = (tuple(row["path"][-1] for row in run), run[0]["numel"], run[0]["source"])
        groups.setdefault(key, []).append(run)
    made = [_made(key, runs, recorded.steps) for key, runs in groups.items()]
    return sorted(made, key=lambda chain: -chain.saved_ms)


def _runs(rows: list[dict[str, Any]], casts: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Adjacent elementwise kernels of a stream over the same number of elements, with casts between them.

    `casts` are those of the rows that are undone at once.
    """
    sizes = {text: _size(text) for text in {row["shapes"] for row in rows}}
    run: list[dict[str, Any]] = []
    away = {id(row) for row in casts}
    for row in rows:
        if id(row) in away:
            continue
        row["numel"], row["last"] = sizes[row["shapes"]]
        row["cast"] = cast_of(" > ".join(row["path"]), row["shapes"], row["dtypes"]) is not None
        fusible = _fusible(row)
        if not (fusible and run and _joins(row, run[0])):
            if _chain(run):
                yield run
            run = []
        if fusible:
            run.append(row)
    if _chain(run):
        yield run


def _chain(run: list[dict[str, Any]]) -> bool:
    """Whether a run is a chain: two kernels may be adjacent by chance; casts alone compute nothing."""
    return len(run) >= SHORTEST and any(not row["cast"] for row in run)


def _fusible(row: dict[str, Any]) -> bool:
    path = " > ".join(row["path"])
    return (
        row["numel"] >= LEAST
        and bool(row["path"])
        and (FUSIBLE.search(row["label"]) or REDUCED.search(row["path"][-1]) or _joined(row)) is not None
        and (row["cast"] or SEPARATE.search(path) is None)
    )


def _joined(row: dict[str, Any]) -> re.Match[str] | None:
    return None if row["path"][0].startswith("autograd::") else JOINED.search(row["label"])


def _joins(row: dict[str, Any], first: dict[str, Any]) -> bool:
    """Whether it has the same number of elements, or within one function of the program a part of them."""
    parts = PARTS if row["source"] and row["source"] == first["source"] else PARTS[:1]
    return any(row["numel"] * part == first["numel"] for part in parts)


def _size(text: str | None) -> tuple[int, int]:
    """Elements of the largest input (of all concatenated ones), and the length of its last dimension."""
    listed = lists_of(text)
    if listed:
        return sum(prod(sizes) for sizes in listed if sizes), listed[0][-1] if listed[0] else 0
    largest = max(shapes_of(text), key=lambda sizes: prod(sizes) if sizes else 0, default=[])
    return (prod(largest), largest[-1]) if largest else (0, 0)


def _made(key: tuple, runs: list[list[dict[str, Any]]], steps: int) -> Chain:
    """The time that a fused kernel saves: all but the longest part, which reads and writes as much."""
    saved: dict[str, float] = {}
    for run in runs:
        longest = max(row["ns"] for row in run)
        part = 1 - longest / (sum(row["ns"] for row in run) or 1)
        for row in run:
            saved[row["label"]] = saved.get(row["label"], 0.0) + part * row["ns"] / steps / NS_PER_MS
    total = sum(row["ns"] for run in runs for row in run) / steps / NS_PER_MS
    first = runs[0][0]
    backward = any(name.startswith("autograd::") for name in first["path"])
    return Chain(
        key[0],
        total,
        saved,
        len(runs) / steps,
        key[1],
        first["last"],
        first["source"],
        first["module"],
        backward,
    )
