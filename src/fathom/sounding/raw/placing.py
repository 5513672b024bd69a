"""Place ops of the attribution phase in the steps of a timeline that was recorded without ops.

The timeline has measured launches. The ops that made them were recorded in other steps, which tracing
lengthened. Both are aligned by the sequence of their launches. Ops with matching launches are placed between
the timeline's launches, with interpolated times, and keep their nesting. Ops without matching launches are
left out. The times of placed ops are not measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fathom.sounding.raw.occurrences import Occurrence, Pairs, matching_pairs, nearest, occurrences
from fathom.sounding.resizing import RESIZED, SCATTER, SCATTER_NS
from fathom.sounding.schema import IDS_PER_BURST

TIMELINES = ("timeline", "slow")
_NONE = -1
_SHAPES = ("shapes", "dtypes", "values")
Tables = dict[str, pl.DataFrame]


@dataclass
class Placed:
    """The tables with placed ops, and how many of the timeline's launches were matched to an op."""

    tables: Tables
    launches: int = 0
    matched: int = 0

    @property
    def share(self) -> float | None:
        """The matched share of the launches, 0 to 1; None if nothing had to be placed."""
        return self.matched / self.launches if self.launches else None


def place(tables: Tables, steps: pl.DataFrame) -> Placed:
    """Place ops in the bursts of a timeline that have none; `steps` must use the clock of the tables.

    Launches of these bursts get the thread, the name of the call and the op from the launches they match.
    """
    if any(tables.get(name) is None for name in ("ops", "launches", "kernels")):
        return Placed(tables)
    bare = _bare(tables["ops"], tables["launches"])
    complete = steps.filter(pl.col("parent").is_null(), pl.col("end_ns").is_not_null())
    known = complete.filter(phase="attribution")
    wanted = complete.filter(pl.col("burst").is_in(bare), pl.col("phase").is_in(TIMELINES))
    if known.is_empty() or wanted.is_empty():
        return Placed(tables)
    return _place(tables, occurrences(tables, known), occurrences(tables, wanted))


def _bare(ops: pl.DataFrame, launches: pl.DataFrame) -> list[int]:
    """Return the bursts of a timeline that have launches but no ops, ascending."""
    timeline = pl.col("phase").is_in(TIMELINES)
    with_ops = ops.filter(timeline, pl.col("kind") == "op")["burst"].unique()
    bursts = launches.filter(timeline)["burst"].drop_nulls().unique()
    return sorted(set(bursts.to_list()) - set(with_ops.to_list()))


def _place(tables: Tables, known: list[Occurrence], wanted: list[Occurrence]) -> Placed:
    known = [candidate for candidate in known if len(candidate.codes)]
    models = [_Model.of(tables["ops"], tables["launches"], candidate) for candidate in known]
    added: list[pl.DataFrame] = []
    linked: list[pl.DataFrame] = []
    made: dict[int, int] = {}
    placed = Placed(tables)
    for step in wanted:
        placed.launches += len(step.codes)
        chosen = _chosen(step, known)
        if chosen is None:
            continue
        pairs, sized = _paired(known[chosen], step)
        first = step.burst * IDS_PER_BURST + made.get(step.burst, 0)
        frame, links, count = models[chosen].placed(step, pairs, sized, first)
        made[step.burst] = made.get(step.burst, 0) + frame.height
        placed.matched += count
        added.append(frame)
        linked.append(links)
    if added:
        ops = pl.concat([tables["ops"].with_columns(pl.col("inferred").fill_null(False)), *added])
        placed.tables = {**tables, "ops": ops, "launches": _linked(tables["launches"], pl.concat(linked))}
    return placed


def _chosen(step: Occurrence, known: list[Occurrence]) -> int | None:
    """Return the index of the known step with equal launches, else with the most in common; None without one.

    Only steps of the same kind count, if there are any. Later steps are preferred, because the profiler
    starts in the first.
    """
    rows = [at for at, candidate in enumerate(known) if candidate.kind == step.kind] or list(
        range(len(known))
    )
    same = [at for at in rows if np.array_equal(known[at].codes, step.codes)]
    if same:
        return same[-1]
    best = nearest(step.names, [known[at].names for at in rows])
    return None if best is None else rows[best]


def _paired(known: Occurrence, step: Occurrence) -> tuple[Pairs, np.ndarray]:
    """Return pairs of matching launches, and a mask of those whose work has the same size.

    Other launch shapes show that a step's inputs have other sizes. A kernel's launch shape may be equal
    nevertheless; then its duration shows the other size.
    """
    pairs = matching_pairs(known.codes, step.codes)
    named = pairs if len(pairs) == len(step.codes) else matching_pairs(known.names, step.names)
    if len(named) - len(pairs) <= RESIZED * len(step.codes):
        return pairs, np.ones(len(pairs), bool)
    return named, _of_one_size(known, step, named)


def _of_one_size(known: Occurrence, step: Occurrence, pairs: Pairs) -> np.ndarray:
    """Return a mask of the pairs with equal launch shape whose kernels take as long in both steps, summed."""
    ours, theirs = pairs.T
    same = known.codes[ours] == step.codes[theirs]
    kernels, group = np.unique(known.codes[ours], return_inverse=True)
    counts, before, now = (
        np.bincount(group, np.where(same, weights, 0), len(kernels))
        for weights in (np.ones(len(pairs)), known.works[ours], step.works[theirs])
    )
    near = np.abs(now - before) <= np.maximum(SCATTER * before, SCATTER_NS * counts)
    return near[group] & same


def _linked(launches: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return the launches, with op, thread and name of the call from `links` if it has their row."""
    rows = launches.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    joined = rows.join(links, on="row", how="left", maintain_order="left")
    taken = [pl.coalesce(f"new_{name}", name).alias(name) for name in ("op", "thread", "api")]
    return joined.with_columns(taken).select(launches.columns)


@dataclass
class _Model:
    """One step with ops, and arrays over its ops; `owner` is the op of each of its launches, or NONE."""

    occurrence: Occurrence
    ops: pl.DataFrame
    threads: np.ndarray
    parent: np.ndarray
    owner: np.ndarray
    launches: pl.DataFrame  # op, thread and api of each launch

    @classmethod
    def of(cls, ops: pl.DataFrame, launches: pl.DataFrame, step: Occurrence) -> _Model:
        inside = (pl.col("start_ns") >= step.start) & (pl.col("start_ns") < step.end)
        own = ops.filter(pl.col("phase") == "attribution", pl.col("burst") == step.burst, inside)
        # A region around the mark, as an optimizer's, ends after the recorder has stopped the profiler.
        own = own.with_columns(end_ns=pl.col("end_ns").clip(upper_bound=step.end))
        pieces = launches[step.rows].select("op", "thread", "api")
        number = {column: at for at, column in enumerate(own["id"].to_list())}
        rows = [[number.get(column, _NONE) for column in ids] for ids in (own["parent"], pieces["op"])]
        parent, owner = (np.array(column, np.int64).reshape(-1) for column in rows)
        return cls(step, own, own["thread"].fill_null(_NONE).to_numpy(), parent, owner, pieces)

    def placed(
        self, step: Occurrence, pairs: Pairs, sized: np.ndarray, first: int
    ) -> tuple[pl.DataFrame, pl.DataFrame, int]:
        """Return the ops for `step`, with ids from `first` on, links, and the number of launches with an op.

        Ops keep their shapes if all of their pairs are in the mask `sized`. Links are new columns for the
        launches of `step`: row, new_op, new_thread, new_api.
        """
        keep = self._kept(pairs[:, 0])
        ids = np.where(keep, first + np.cumsum(keep) - 1, _NONE)
        parent = self._climbed(self.parent, keep)
        shaped = pl.lit(self._shaped(pairs, sized))
        times = [self._moved(self.ops[name].to_numpy(), step, pairs) for name in ("start_ns", "end_ns")]
        frame = self.ops.with_columns(
            id=pl.Series(ids, dtype=pl.Int64),
            parent=_or_null(_at(ids, parent)),
            start_ns=pl.Series(times[0]),
            end_ns=pl.Series(times[1]),
            inferred=pl.lit(True),
            phase=pl.lit(step.phase),
            burst=pl.lit(step.burst, pl.Int32),
            **{name: pl.when(shaped).then(name) for name in _SHAPES},
        ).filter(pl.Series(keep))
        owner = self._climbed(self.owner, keep)[pairs[:, 0]]
        links = self.launches[pairs[:, 0]].select(
            pl.Series("row", step.rows[pairs[:, 1]], dtype=pl.Int64),
            _or_null(_at(ids, owner)).alias("new_op"),
            new_thread="thread",
            new_api="api",
        )
        return frame, links, int((owner != _NONE).sum())

    def _kept(self, matched: np.ndarray) -> np.ndarray:
        """Return a mask of ops with a matched launch, or without launches but not between unmatched ones."""
        every = self._within(np.arange(len(self.owner)))
        matches = self._within(matched)
        return (matches > 0) | ((every == 0) & ~self._in_hole(matched))

    def _shaped(self, pairs: Pairs, sized: np.ndarray) -> pl.Series:
        """Return a mask of the ops whose shapes apply."""
        if sized.all():
            return pl.Series(np.ones(len(self.parent), bool))
        matches = self._within(pairs[:, 0])
        return pl.Series((matches > 0) & (self._within(pairs[sized, 0]) == matches))

    def _within(self, pieces: np.ndarray) -> np.ndarray:
        """Return how many of these launches each op made, itself or through nested ops."""
        counts = np.zeros(len(self.parent), np.int64)
        at = self.owner[pieces]
        at = at[at != _NONE]
        while len(at):
            np.add.at(counts, at, 1)
            at = self.parent[at]
            at = at[at != _NONE]
        return counts

    def _in_hole(self, matched: np.ndarray) -> np.ndarray:
        """Return a mask of ops that begin between two launches of which at least one was not matched."""
        missing = np.ones(len(self.owner), bool)
        missing[matched] = False
        if not missing.any():
            return np.zeros(len(self.parent), bool)
        starts, order = np.sort(self.occurrence.starts), np.argsort(self.occurrence.starts)
        padded = np.concatenate([[False], missing[order], [False]])
        after = np.searchsorted(starts, self.ops["start_ns"].to_numpy(), side="right")
        return padded[after] | padded[after + 1]

    def _climbed(self, rows: np.ndarray, keep: np.ndarray) -> np.ndarray:
        """Return for each op in `rows` the nearest kept op, itself or one around it, or NONE."""
        rows = rows.copy()
        lost = (rows != _NONE) & ~keep[rows] if len(keep) else np.zeros(len(rows), bool)
        while lost.any():
            rows[lost] = self.parent[rows[lost]]
            lost = (rows != _NONE) & ~keep[rows]
        return rows

    def _moved(self, times: np.ndarray, step: Occurrence, pairs: Pairs) -> np.ndarray:
        """Return the times of the ops in `step`, interpolated between matched launches of the same thread."""
        moved = np.empty(len(times), np.int64)
        of_piece = self.launches["thread"].fill_null(_NONE).to_numpy()[pairs[:, 0]]
        anchors = self._anchors(step, pairs)
        for thread in np.unique(self.threads):
            mine = self.threads == thread
            moved[mine] = _interpolated(times[mine], *_ordered(*anchors, np.repeat(of_piece == thread, 2)))
        return moved

    def _anchors(self, step: Occurrence, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
        """Return the start and end of each matched call in both steps, followed by the steps' bounds."""
        ours, theirs = self.occurrence, step
        here = np.stack([ours.starts[pairs[:, 0]], ours.ends[pairs[:, 0]]], axis=1).ravel()
        there = np.stack([theirs.starts[pairs[:, 1]], theirs.ends[pairs[:, 1]]], axis=1).ravel()
        return (
            np.concatenate([here, [ours.start, ours.end]]),
            np.concatenate([there, [theirs.start, theirs.end]]),
        )


def _ordered(here: np.ndarray, there: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a thread's anchors, ascending in both steps, with those of others before and after them."""
    own = np.concatenate([own, [False, False]])
    if own.any():
        inside = (here > here[own].min()) & (here < here[own].max())
        here, there = here[own | ~inside], there[own | ~inside]
    order = np.lexsort((there, here))
    here, there = here[order], np.maximum.accumulate(there[order])
    first = np.concatenate([[True], np.diff(here) > 0])
    return here[first], there[first]


def _interpolated(times: np.ndarray, here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Return `times` interpolated between the anchors; times outside are shifted like the nearest anchor."""
    base, target = int(here[0]), int(there[0])
    moved = np.interp(times - base, here - base, there - target)
    beyond = np.where(times > here[-1], times - here[-1], np.where(times < base, times - base, 0))
    return np.rint(moved).astype(np.int64) + target + beyond


def _at(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return `values` at the indices `rows`, and NONE at NONE."""
    return np.append(values, _NONE)[rows]


def _or_null(values: np.ndarray) -> pl.Series:
    """Return the values as a column, with null for NONE."""
    return pl.Series(values, dtype=pl.Int64).set(pl.Series(values == _NONE), None)
