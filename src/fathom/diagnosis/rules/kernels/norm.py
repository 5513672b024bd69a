"""Unfused norms: all passes over the normalised tensor, compared with the library's kernel."""

from __future__ import annotations

import re
from collections import Counter
from math import prod

import msgspec
from msgspec.structs import replace

from fathom.analysis.work import DTYPES, SIZE
from fathom.diagnosis.grouping import grouped, summed
from fathom.diagnosis.rules.candidates import memory_rate, mended, ms_of
from fathom.diagnosis.rules.rule import Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals, Work
from fathom.units import MS_PER_S

MEAN = re.compile(r"aten::(mean|var|var_mean|std|sum|linalg_vector_norm)$")
ROOT = re.compile(r"aten::(rsqrt|sqrt|std|linalg_vector_norm)$")
PIECE = re.compile(r"aten::(sub|mul|div|add|pow|square)_?$")
PIECES = 2  # ops over the whole tensor, besides the mean
BEHIND = re.compile(r"^autograd::engine::evaluate_function: (\w+?)Backward\d*$")
LARGE = 1 << 16  # elements: smaller tensors stay in the cache
FORWARD, BACKWARD = 2, 5  # passes of the library's kernel: x and y; gradient and x twice, and x's gradient
REACHED = 0.6  # of the memory ceiling, by the library's kernel
WORTH = 0.7  # of the present time

Size = tuple[int, int]  # elements, and the length of the last dimension


class Norm(msgspec.Struct, frozen=True):
    """The forward and backward work of a function's norms over tensors of one size; `calls` are per step."""

    works: list[Work]
    calls: float


@rule("kernels-unfused-norm")
def norm(signals: Signals) -> Candidates:
    """Find functions with a mean, a root, and elementwise ops over the same tensor."""
    every = norms(signals["kernels.work"])
    needs = [(norm, _library_ms(norm, memory_rate(signals, REACHED, norm.works))) for norm in every]
    kept = [(norm, need) for norm, need in needs if need < WORTH * ms_of(norm.works)]
    mine = [work for norm, _ in kept for work in norm.works]
    if mine:
        now, needed = ms_of(mine), sum(need for _, need in kept)
        yield mended(
            signals,
            (mine, needed / now),
            evidence=[
                Evidence("kernels of unfused norms", now, "ms per step"),
                Evidence("time that the library's kernels would take", needed, "ms per step"),
                Evidence("number of these norms", sum(norm.calls for norm, _ in kept), "per step"),
            ],
            doubt=0.15,
            confidence=0.85,
            check="use F.layer_norm or F.rms_norm, and time the step",
        )


def norms(works: list[Work]) -> list[Norm]:
    """Return the unfused norms of a step, by the function that contains them."""
    forward = (work for work in works if work.source and not work.backward)
    by_source = grouped(forward, lambda work: work.source).values()
    return [_norm(mine, size, works) for mine in by_source if (size := _normalised(mine))]


def _normalised(mine: list[Work]) -> Size | None:
    """Return the size of the function's means and of most of its elementwise ops, if it also takes roots."""
    means = {size_of(work) for work in mine if MEAN.search(work.op)}
    pieces = Counter(size for work in mine if PIECE.search(work.op) and (size := size_of(work)) in means)
    rooted = any(ROOT.search(work.op) for work in mine)
    large = [size for size, count in pieces.items() if size[0] >= LARGE and _ops(mine, size) >= PIECES]
    return max(large, key=lambda size: pieces[size]) if rooted and large else None


def _ops(mine: list[Work], size: Size) -> int:
    return len({work.op for work in mine if PIECE.search(work.op) and size_of(work) == size})


def _norm(mine: list[Work], size: Size, works: list[Work]) -> Norm:
    """Return a norm and its backward work, found by forward ops' names and divided among their users."""
    forward = [work for work in mine if size_of(work) == size]
    alike = [work for work in works if size_of(work) == size]
    own, every = _named(forward), _named(alike)
    behind = [
        replace(work, ms=work.ms * share, count=work.count * share)
        for work in alike
        if (share := _share(work, own, every))
    ]
    return Norm([*forward, *behind], sum(work.count for work in mine if ROOT.search(work.op)))


def _named(works: list[Work]) -> dict[str, float]:
    """Return the calls of each op in the forward pass, by the prefix of its backward function."""
    return summed((_plain(work.op), work.count) for work in works if not work.backward)


def _plain(name: str) -> str:
    return name.removeprefix("aten::").replace("_", "").lower()


def _share(work: Work, own: dict[str, float], every: dict[str, float]) -> float:
    match = BEHIND.search(work.ops[0]) if work.ops else None
    name = _plain(match[1]) if match else ""
    return min(own.get(name, 0.0) / every[name], 1.0) if every.get(name) else 0.0


def size_of(work: Work) -> Size:
    """Return the size of the largest input."""
    largest = max(work.sizes, key=lambda sizes: prod(sizes) if sizes else 0, default=[])
    return (prod(largest), largest[-1]) if largest else (0, 0)


def _library_ms(norm: Norm, rate: float) -> float:
    behind = any(work.backward for work in norm.works)
    sizes = [SIZE[DTYPES[name]] for work in norm.works for name in work.types[:1] if name in DTYPES]
    passes = FORWARD + BACKWARD * behind
    return MS_PER_S * norm.calls * passes * size_of(norm.works[0])[0] * min(sizes, default=4.0) / rate
