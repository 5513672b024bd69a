"""Split steps of one kind by the work that they do: by their ops or kernels, never by time alone.

Two steps are alike if they ran nearly the same ops or kernels, by name (and launch shape) and count. A chain
of steps that are each like the previous one is one kind, no matter how far it drifts. Two kinds stay separate
only if their times differ too, by at least half and in nearly all pairs of steps. So neither noise nor
changing shapes split a kind.
"""

from __future__ import annotations

from itertools import combinations

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.columns import distinct
from fathom.analysis.intervals import Array, Spans, containing
from fathom.timing import median

OTHER = "+kind "  # suffix of steps with other work: `train+kind 2`
UNLIKE = 0.2  # two steps are not alike if a larger share of their work differs
MOST_KINDS = 3  # more kinds mean that shapes change from step to step
RATIO = 1.5  # least ratio of the times of two kinds
IN_ORDER = 0.9  # least share of pairs in which the step of the slower kind takes longer
LEAST, MOST = 4, 200  # least and most steps of a timeline that are compared
USUAL = 2 / 3  # least share of the usual kind in all steps, so that the median step is of it
TWICE = 2  # fewest steps of a kind
IN_TURN = 3  # fewest occurrences that show a regular interval
# Least gap between the times of two kinds, in logarithms: as a multiple of the widest gap within a kind, and
# as a share of the distance between their medians.
WIDER, DEEP = 2.0, 0.25


class KnownSteps(msgspec.Struct, frozen=True):
    """Steps whose work is known: step numbers, groups (0 is the usual one), and times in ns."""

    numbers: Array
    groups: Array
    spent: Array

    @property
    def slow(self) -> int:
        """Index of the slower of the two groups."""
        return int(self._median(1) > self._median(0))

    @property
    def ratio(self) -> float:
        """Ratio of the median times of the slower and the faster group."""
        return self._median(self.slow) / self._median(1 - self.slow)

    def _median(self, group: int) -> float:
        return median(self.spent[self.groups == group])


def split_by_work(steps: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Return `steps`, with kinds like `train+kind 2` for timeline steps that do other work than usual.

    `work` has start_ns and end_ns (of kernels: on the device), at (launch time) and what (name). Steps of the
    clean phase have only times. They get the kind if their times differ as much as in the timeline.
    """
    complete = steps.filter(pl.col("parent").is_null(), pl.col("end_ns") > pl.col("mark_ns"))
    rows = complete.filter(phase="timeline").sort("mark_ns")
    for (kind,), mine in rows.group_by("kind", maintain_order=True):
        if LEAST <= mine.height <= MOST and isinstance(kind, str):
            clean = complete.filter(phase="clean", kind=kind)
            steps = _renamed(steps, _labels(mine, work, clean), kind)
    return steps


def _renamed(steps: pl.DataFrame, labels: dict[int, int], kind: str) -> pl.DataFrame:
    """Rename the steps whose start is in `labels`, which maps it to the index of a kind (0 if usual)."""
    names = {mark: f"{kind}{OTHER}{number + 1}" for mark, number in labels.items() if number}
    if not names:
        return steps
    named = pl.DataFrame({"mark_ns": list(names), "named": list(names.values())})
    joined = steps.join(named, on="mark_ns", how="left", maintain_order="left")
    other = pl.col("named").is_not_null() & (pl.col("kind") == kind) & pl.col("parent").is_null()
    return joined.with_columns(kind=pl.when(other).then("named").otherwise("kind")).drop("named")


def _labels(rows: pl.DataFrame, work: pl.DataFrame, clean: pl.DataFrame) -> dict[int, int]:
    """Map the start of each step to the index of its kind; {} if there is one kind or no clear split."""
    counts, spent = ran(rows, work)
    groups = separate(alike(counts), spent)
    sizes = np.bincount(groups)
    if len(sizes) < 2:
        return {}
    host = "launched" not in work.columns
    times = (clean["end_ns"] - clean["mark_ns"]).to_numpy()
    known = KnownSteps(rows["step"].to_numpy(), groups, spent)
    by_length = by_time(times, clean["step"].to_numpy(), known) if host else None
    if by_length is None and (sizes.min() < TWICE or sizes[0] < USUAL * len(groups)):
        return {}
    numbers = dict(zip(rows["mark_ns"].to_list(), groups.tolist(), strict=True))
    return (
        numbers
        if by_length is None
        else numbers | dict(zip(clean["mark_ns"].to_list(), by_length.tolist(), strict=True))
    )


def ran(rows: pl.DataFrame, work: pl.DataFrame) -> tuple[Array, Array]:
    """For each step, return the number of each `what` and the ns on the device (without one, on the host)."""
    opens, ends = rows["mark_ns"].to_numpy(), rows["end_ns"].to_numpy()
    step = containing(Spans(opens, ends), work["at"].to_numpy())
    inside = step >= 0
    what = work["what"].rank("dense").fill_null(0).to_numpy().astype(np.int64)
    counts = np.zeros((len(opens), int(what.max(initial=0)) + 1))
    np.add.at(counts, (step[inside], what[inside]), 1)
    if "launched" not in work.columns:
        return counts, (ends - opens).astype(float)
    lasted = (work["end_ns"] - work["start_ns"]).to_numpy()
    return counts, np.bincount(step[inside], lasted[inside], len(opens))


def alike(counts: Array) -> Array:
    """Return the group of each row of `counts` (steps × work); a group is a chain of alike rows."""
    groups = np.arange(len(counts))
    for i, row in enumerate(counts):
        more = np.maximum(counts[i + 1 :], row).sum(axis=1)
        unlike = np.abs(counts[i + 1 :] - row).sum(axis=1)
        near = np.flatnonzero(unlike <= UNLIKE * more) + i + 1
        for other in near.tolist():
            groups[groups == groups[other]] = groups[i]
    return np.unique(groups, return_inverse=True)[1].ravel()


def separate(groups: Array, spent: Array) -> Array:
    """Merge groups with similar times and sort by falling total time; if groups are too many, merge all.

    Groups of a single step come last, because one step gives no reliable mean.
    """
    if groups.max(initial=0) >= MOST_KINDS:
        return np.zeros(len(groups), np.int64)
    groups = groups.copy()
    for first, second in combinations(range(int(groups.max(initial=0)) + 1), 2):
        mine, theirs = spent[groups == first], spent[groups == second]
        if len(mine) and len(theirs) and not differ(mine, theirs):
            groups[groups == second] = first
    names = distinct(groups)
    key = lambda name: ((groups == name).sum() < TWICE, -float(spent[groups == name].sum()))  # noqa: E731
    order = sorted(names.tolist(), key=key)
    return np.array([order.index(name) for name in groups.tolist()], np.int64)


def differ(mine: Array, theirs: Array, least: float = IN_ORDER) -> bool:
    """Return whether groups of times differ clearly, in medians and `least` share of pairs; not if empty."""
    if not len(mine) or not len(theirs):
        return False
    low, high = sorted((mine, theirs), key=median)
    in_order = (high[:, None] > low).mean()
    return bool(in_order >= least) and median(high) >= RATIO * median(low) > 0


def by_time(times: Array, numbers: Array, known: KnownSteps) -> Array | None:
    """Return the group of each of `times` in ns if they form two groups as in the timeline, else None.

    The times are split at their widest gap, with at least two steps on either side, because a single slow
    step is not a kind. Since noise also has a widest gap, the gap must be far wider than any other, or one
    kind must recur at regular intervals by the step numbers in `numbers` and `known`.
    """
    if known.groups.max(initial=0) != 1 or len(times) < 2 * TWICE or times.min() <= 0:
        return None
    ordered = np.sort(times).astype(float)
    gaps = np.diff(np.log(ordered))[TWICE - 1 : len(ordered) - TWICE]
    place = int(np.argmax(gaps)) + TWICE
    low, high = ordered[:place], ordered[place:]
    ratio = median(high) / median(low)
    if not differ(low, high) or not 1 / RATIO <= ratio / known.ratio <= RATIO:
        return None
    groups = np.where(times >= high[0], known.slow, 1 - known.slow)
    every = np.append(numbers, known.numbers), np.append(groups, known.groups)
    return groups if _wide(low, high) or in_turn(*every) else None


def _wide(low: Array, high: Array) -> bool:
    """Return whether the gap between the sides is wider than gaps within them: neither is just a tail.

    For 60 steps of one kind that vary by 40 %, it wrongly finds two kinds in 4 % of samples; at 20 %, in none
    of 500.
    """
    within = max(float(np.diff(np.log(side)).max(initial=0.0)) for side in (low, high))
    gap = float(np.log(high[0] / low[-1]))
    return gap > WIDER * within and gap > DEEP * np.log(median(high) / median(low))


def in_turn(numbers: Array, groups: Array) -> bool:
    """Return whether the rarer of two groups is exactly every n-th step, and occurs at least three times."""
    rarer = int(np.bincount(groups, minlength=2).argmin())
    return interval_of(numbers, groups == rarer) is not None


def interval_of(numbers: Array, chosen: Array) -> int | None:
    """Return n if the chosen steps are exactly every n-th step and at least three, else None."""
    mine, others = numbers[chosen], numbers[~chosen]
    every = int(np.gcd.reduce(np.diff(np.sort(mine)))) if len(mine) >= IN_TURN else 0
    return every if every >= TWICE and not ((others - mine[0]) % every == 0).any() else None
