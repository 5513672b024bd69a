"""Kernels that a compiler fuses: how many it generates instead, and the time that they save."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from math import prod
from typing import NamedTuple

import msgspec

from fathom.analysis.work import DTYPES, SIZE
from fathom.diagnosis.signals.shapes import dtypes_of, shapes_of

CAT, COPY, FILLS = "aten::cat", "aten::copy_", ("aten::fill_", "aten::zero_")
DROPOUT, ADDS = "aten::native_dropout", ("aten::add", "aten::add_")
SCATTERED = "scattered"
SCATTERS = re.compile(r"^aten::(_index_put_impl_|embedding_dense_backward|(index|scatter)_add_?)$")
COLUMNS = re.compile(r"aten::(sum|sum_to_size|\w+_norm_backward|\w*batch_norm\w*)$")
SUM = re.compile(r"aten::sum(_to_size)?$")
NORMS = re.compile(r"norm")
LONG = re.compile(r"(batch|group)_norm")  # over rows that are longer than a block: read twice
SLOW = 0.5  # of its time: a generated kernel that is at least twice as fast
LONGEST = 64  # kernels in one: the compiler's max_fusion_size
FEW_ROWS = 32  # the compiler does not split sums over fewer rows,
MANY_COLUMNS = 64  # or over so many columns per multiprocessor
MIXED = 5 << 20  # elements from which one kernel sums up rows and columns (torch 2.10)
SAME = 0.1  # two sizes in bytes that differ by less are those of one tensor
RANDOM = 0.88  # numbers per multiprocessor and clock, in three programs on an H200: Philox is called for each


class Part(NamedTuple):
    """A kernel; `part` says how the compiler treats it, `needs` are the minimum bytes of its share of `op`.

    `reads` and `writes` are the bytes of the op's tensors of `numel` elements, `columns` the size of their
    last dimension. None where they are unknown.
    """

    part: str
    window: int
    ns: int
    label: str
    op: str
    owner: int
    needs: float | None = None
    numel: int | None = None
    reads: list[float] | None = None
    writes: float = 0.0
    columns: int | None = None
    vector: bool = False  # the op casts or copies a short tensor of one dimension, such as a bias
    source: str | None = None
    module: str | None = None


class Reach(NamedTuple):
    """Limits of generated kernels: bytes per ns, ns of the shortest, random numbers per ns (0: unknown)."""

    rate: float
    shortest_ns: float = 1500.0
    random: float = 0.0
    multiprocessors: int = 132


class Moved(NamedTuple):
    """Bytes of a fused kernel: `once` in its last pass, and `again` in those before it."""

    once: float
    again: float

    @property
    def total(self) -> float:
        return self.once + self.again


class Fused(msgspec.Struct):
    """The time that fusion saves by family, in nanoseconds, and the number of kernels before and after."""

    saved: dict[str, float] = msgspec.field(default_factory=dict)
    now_ns: float = 0.0
    before: int = 0
    after: int = 0
    chains: int = 0  # of two kernels or more
    longest_ns: float = 0.0  # the most that fusing one chain saves
    longest: list[Part] = []

    def save(self, rows: list[Part], ns: float) -> None:
        """Save `ns` of the time of these kernels, in proportion to it; less than 0 if fusing costs time."""
        now = sum(row.ns for row in rows)
        for row in rows:
            self.saved[row.label] = self.saved.get(row.label, 0.0) + ns * row.ns / now

    def gains(self) -> dict[str, float]:
        """Return what families save, less what fusing costs others, in proportion."""
        gains = {family: ns for family, ns in self.saved.items() if ns > 0}
        left = max(sum(self.saved.values()), 0.0) / sum(gains.values()) if gains else 0.0
        return {family: left * ns for family, ns in gains.items() if left}


def tensors_of(
    op: str, shapes: str | None, dtypes: str | None, needs: float | None
) -> tuple[list[float], float]:
    """Return the bytes of the largest tensors that an op reads, and of what it writes.

    Tensors of fewer elements do not count. `needs` are the minimum bytes of the op; without them it is
    assumed to write as much as it reads of one tensor.
    """
    sizes, types = shapes_of(shapes), dtypes_of(dtypes)
    largest = max((prod(shape) for shape in sizes if shape), default=0)
    reads = [
        float(largest * SIZE[DTYPES[name]])
        for shape, name in zip(sizes, types, strict=False)
        if shape and prod(shape) == largest and DTYPES.get(name) is not None
    ]
    if op in FILLS:
        reads = []
    elif op == COPY:
        reads = reads[1:]  # the first is what it writes
    elif not reads and needs:  # such as a list of tensors
        reads = [needs / 2]
    return reads, max(needs - sum(reads), 0.0) if needs is not None else max(reads, default=0.0)


def fuse(rows: list[Part], reach: Reach) -> Fused:
    """Fuse adjacent kernels over equally many elements into one kernel that moves shared data once.

    Runs end at kernels of libraries. Kernels over other sizes in between, such as casts of weights, do not
    fuse with those around them. A cast of a bias's gradient does, with the sum before it.
    """
    fused = Fused()
    for run in runs_of(rows):
        for alike in of_one_size([row for row in run if not row.vector]):
            _fuse(fused, alike, reach)
        _absorb(fused, [row for row in run if row.vector])
    _scatter(fused, [row for row in rows if row.part == SCATTERED], reach)
    return fused


def runs_of(rows: list[Part]) -> Iterator[list[Part]]:
    run: list[Part] = []
    for row in rows:
        if run and (row.part != "fused" or row.window != run[0].window or len(run) >= LONGEST):
            yield run
            run = []
        if row.part == "fused":
            run.append(row)
    if run:
        yield run


def of_one_size(run: list[Part]) -> Iterator[list[Part]]:
    sizes: dict[int | None, list[Part]] = {}
    for row in run:
        sizes.setdefault(row.numel, []).append(row)
    yield from sizes.values()


def _fuse(fused: Fused, alike: list[Part], reach: Reach) -> None:
    now = sum(row.ns for row in alike)
    fused.now_ns += now
    fused.before += len(alike)
    after = _kernels(alike, reach)
    fused.after += after
    then = _then(alike, after, reach)
    if len(alike) == 1 and not _gains_alone(alike[0], now, then):
        return
    fused.chains += len(alike) > 1
    fused.save(alike, now - then)
    if now - then > fused.longest_ns:
        fused.longest_ns, fused.longest = now - then, alike


def _then(alike: list[Part], after: int, reach: Reach) -> float:
    """Return the time of generated kernels: at least that of their bytes, and of their random numbers.

    The library draws four random numbers at once. Only there a fused kernel may take longer than the others.
    """
    now = sum(row.ns for row in alike)
    bytes_ = moved(alike)
    then = max(bytes_.total / reach.rate, after * reach.shortest_ns) + _strided_ns(alike, reach.rate)
    drawn = sum(row.numel or 0 for row in alike if row.op == DROPOUT)
    drawing = bytes_.again / reach.rate + drawn / reach.random if drawn and reach.random else 0.0
    return max(min(then, now), drawing)


def _strided_ns(alike: list[Part], rate: float) -> float:
    """Return how much longer than their bytes copies take that change the layout for a norm.

    A kernel that reduces rows tiles one layout only, and reads or writes the other with strides.
    """
    if not any(NORMS.search(row.op) for row in alike):
        return 0.0
    copies = [row for row in alike if row.op == COPY and row.reads == [row.writes]]
    return sum(max(row.ns - (row.needs or 0.0) / rate, 0.0) for row in copies)


def _absorb(fused: Fused, casts: list[Part]) -> None:
    """Save all the time of casts that generated kernels contain."""
    fused.before += len(casts)
    for row in casts:
        fused.now_ns += row.ns
        fused.save([row], row.ns)


def _gains_alone(row: Part, now: float, then: float) -> bool:
    """Return whether one generated kernel replaces another profitably: a norm, a slow sum over columns, or a
    slow concatenation.
    """
    slow = (bool(COLUMNS.search(row.op)) or row.op == CAT) and bool(row.needs) and then < SLOW * now
    return bool(NORMS.search(row.op)) or slow


def _kernels(alike: list[Part], reach: Reach) -> int:
    """Return the number of generated kernels: one, and those of sums over rows, which end it.

    A long norm needs the sums of its parts, and their sum, before it can normalise.
    """
    ops = {row.owner: row for row in alike}.values()
    return any(not SUM.search(row.op) for row in alike) + sum(_more(row, reach) for row in ops)


def _more(row: Part, reach: Reach) -> int:
    """Return the extra kernels of an op: of sums over rows, in two steps if there are many."""
    if LONG.search(row.op):
        return 2
    if not COLUMNS.search(row.op):
        return 0
    if not _is_split(row, reach):
        return 1
    return 3 if _sums_weights(row) else 2


def _sums_weights(row: Part) -> bool:
    """Return whether a kernel that reads the op's tensors again sums up the gradients of a norm's weights."""
    return bool(NORMS.search(row.op) and COLUMNS.search(row.op)) and (row.numel or 0) < MIXED


def _is_split(row: Part, reach: Reach) -> bool:
    """Return whether the compiler splits a sum over rows, as its `Reduction.num_splits` decides."""
    if not row.columns or not row.numel:
        return True
    return row.numel > FEW_ROWS * row.columns and row.columns < MANY_COLUMNS * reach.multiprocessors


def moved(run: list[Part]) -> Moved:
    """Return the bytes of a fused kernel: what an op writes and a later one reads stays in registers.

    An op's result is assumed to be read by the next op over a tensor of that size and by no other, except for
    sums of two tensors, which a residual branch reads later. Sums over rows, and long norms, read their
    tensors in passes before.
    """
    once = again = 0.0
    results: list[tuple[float, float]] = []  # in registers: bytes, and those written if no op reads them
    usual = _usual(run)
    for _, each in groupby(run, key=lambda row: row.owner):
        rows = list(each)
        op = rows[0].op
        reads, writes = _tensors(rows, usual)
        if SUM.search(op):
            again += sum(reads)
            continue
        for size in reads:
            once += 0.0 if _take(results, size) else size
        if LONG.search(op):
            again += once
        elif _sums_weights(rows[0]):
            again += sum(reads)
        if op == DROPOUT and reads:  # the mask is written besides
            once, writes = once + max(writes - reads[0], 0.0), reads[0]
        residual = op in ADDS and len(reads) > 1
        once += writes if residual else 0.0
        results.append((writes, 0.0 if residual else writes))
    return Moved(once + sum(unread for _, unread in results), again)


def _tensors(rows: list[Part], usual: float) -> tuple[list[float], float]:
    """Return what an op reads and writes; of unknown ops, at most what kernels can move in their time."""
    first = rows[0]
    needs = sum(row.ns * usual if row.needs is None else row.needs for row in rows)
    if first.reads is None:
        return [needs / 2], needs / 2
    if any(row.needs is None for row in rows):
        share = min(needs / total, 1.0) if (total := sum(first.reads) + first.writes) else 0.0
        return [share * size for size in first.reads], share * first.writes
    return first.reads, first.writes


def _usual(run: list[Part]) -> float:
    """Return the bytes per ns of the kernels whose bytes are known."""
    known = [(row.needs, row.ns) for row in run if row.needs is not None]
    time = sum(ns for _, ns in known)
    return sum(needs for needs, _ in known) / time if time else 0.0


def _take(results: list[tuple[float, float]], size: float) -> bool:
    """Remove a result of about this size; False if there is none."""
    for place, (result, _) in enumerate(results):
        if abs(result - size) <= SAME * size:
            del results[place]
            return True
    return False


def _scatter(fused: Fused, mine: list[Part], reach: Reach) -> None:
    """Replace the kernels that sort indices and add up rows by one kernel per call, which adds atomically."""
    needs: dict[int, float] = {}
    for row in mine:
        if SCATTERS.search(row.op):
            needs[row.owner] = needs.get(row.owner, 0.0) + (row.needs or 0.0)
    known = [need for need in needs.values() if need]
    if not known:
        return
    total = sum(row.ns for row in mine)
    now = total * len(known) / len(needs)  # calls of unknown bytes stay as they are
    then = sum(max(need / reach.rate, reach.shortest_ns) for need in known)
    fused.now_ns += now
    fused.before += len(mine)
    fused.after += len(needs)
    fused.save(mine, max(now - then, 0.0))
