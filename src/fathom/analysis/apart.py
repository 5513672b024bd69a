"""Steps of one kind that do different work: told apart by their ops or kernels, never by their time alone.

Two steps are alike if what they ran is, by name (and, of kernels, launch shape) and number. What hangs
together by likeness is one kind, however it drifts. Kinds stay apart if their time does, too: by at least
half, and nearly always. So noise splits nothing, and neither do shapes that change from step to step.
"""

from __future__ import annotations

from itertools import combinations

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.intervals import Array
from fathom.timing import median

OTHER = "+kind "  # what other work of the kind with most time is marked by: `train+kind 2`
UNLIKE = 0.2  # of what two steps ran: from here on it differs
MOST_KINDS = 3  # with more, shapes change from step to step
RATIO = 1.5  # between the times of two kinds, at least
IN_ORDER = 0.9  # of all pairs of two kinds: so often the slower one takes longer
LEAST, MOST = 4, 200  # steps of a timeline that can be compared
USUAL = 2 / 3  # of all steps: so many of one kind make the median theirs
TWICE = 2
IN_TURN = 3
WIDER, DEEP = 2.0, 0.25  # the gap between two kinds: than any within, and of the way between their medians


class Known(msgspec.Struct, frozen=True):
    """Steps whose work is known: their numbers, groups (0 is the usual one) and times."""

    numbers: Array
    groups: Array
    spent: Array

    @property
    def slow(self) -> int:
        """Which of two groups takes longer."""
        return int(self._median(1) > self._median(0))

    @property
    def ratio(self) -> float:
        """By how much."""
        return self._median(self.slow) / self._median(1 - self.slow)

    def _median(self, group: int) -> float:
        return median(self.spent[self.groups == group])


def kinds_apart(steps: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """`steps` with kinds like `train+kind 2` where those of a timeline did other work than most of the time.

    `work` has start_ns, end_ns (of kernels their own), at (when they were asked for) and what. Of the clean
    phase, which shows times alone, steps are named where these fall as far apart as in the timeline.
    """
    whole = steps.filter(pl.col("parent").is_null(), pl.col("end_ns") > pl.col("mark_ns"))
    rows = whole.filter(phase="timeline").sort("mark_ns")
    for (kind,), mine in rows.group_by("kind", maintain_order=True):
        if LEAST <= mine.height <= MOST and isinstance(kind, str):
            clean = whole.filter(phase="clean", kind=kind)
            steps = _renamed(steps, _labels(mine, work, clean), kind)
    return steps


def _renamed(steps: pl.DataFrame, labels: dict[int, int], kind: str) -> pl.DataFrame:
    """Those that open at the times in `labels`, which says the number of their kind, 0 for the usual one."""
    names = {mark: f"{kind}{OTHER}{number + 1}" for mark, number in labels.items() if number}
    if not names:
        return steps
    named = pl.DataFrame({"mark_ns": list(names), "named": list(names.values())})
    joined = steps.join(named, on="mark_ns", how="left", maintain_order="left")
    other = pl.col("named").is_not_null() & (pl.col("kind") == kind) & pl.col("parent").is_null()
    return joined.with_columns(kind=pl.when(other).then("named").otherwise("kind")).drop("named")


def _labels(rows: pl.DataFrame, work: pl.DataFrame, clean: pl.DataFrame) -> dict[int, int]:
    """Opening of a step to the number of its kind; {} where all are one, or nothing tells."""
    counts, spent = _ran(rows, work)
    groups = separate(alike(counts), spent)
    sizes = np.bincount(groups)
    if len(sizes) < 2:
        return {}
    host = "launched" not in work.columns
    times = (clean["end_ns"] - clean["mark_ns"]).to_numpy()
    known = Known(rows["step"].to_numpy(), groups, spent)
    told = by_time(times, clean["step"].to_numpy(), known) if host else None
    if told is None and (sizes.min() < TWICE or sizes[0] < USUAL * len(groups)):
        return {}
    found = dict(zip(rows["mark_ns"].to_list(), groups.tolist(), strict=True))
    return (
        found if told is None else found | dict(zip(clean["mark_ns"].to_list(), told.tolist(), strict=True))
    )


def _ran(rows: pl.DataFrame, work: pl.DataFrame) -> tuple[Array, Array]:
    """By step: how often it ran each `what`, and its time: what a device worked in it, else the host's."""
    opens, ends = rows["mark_ns"].to_numpy(), rows["end_ns"].to_numpy()
    at = work["at"].to_numpy()
    step = np.searchsorted(opens, at, "right") - 1
    inside = (step >= 0) & (at < ends[np.maximum(step, 0)])
    what = work["what"].rank("dense").fill_null(0).to_numpy().astype(np.int64)
    counts = np.zeros((len(opens), int(what.max(initial=0)) + 1))
    np.add.at(counts, (step[inside], what[inside]), 1)
    if "launched" not in work.columns:
        return counts, (ends - opens).astype(float)
    lasted = (work["end_ns"] - work["start_ns"]).to_numpy()
    return counts, np.bincount(step[inside], lasted[inside], len(opens))


def alike(counts: Array) -> Array:
    """The group of each row of `counts` (steps × what they ran): what is alike hangs together."""
    groups = np.arange(len(counts))
    for i, row in enumerate(counts):
        more = np.maximum(counts[i + 1 :], row).sum(axis=1)
        unlike = np.abs(counts[i + 1 :] - row).sum(axis=1)
        near = np.flatnonzero(unlike <= UNLIKE * more) + i + 1
        for other in near.tolist():
            groups[groups == groups[other]] = groups[i]
    return np.unique(groups, return_inverse=True)[1].ravel()


def separate(groups: Array, spent: Array) -> Array:
    """`groups` without those whose times are alike, by falling time altogether; too many groups are one.

    A step that is alone comes last: it is no mean.
    """
    if groups.max(initial=0) >= MOST_KINDS:
        return np.zeros(len(groups), np.int64)
    groups = groups.copy()
    for one, other in combinations(range(int(groups.max(initial=0)) + 1), 2):
        mine, theirs = spent[groups == one], spent[groups == other]
        if len(mine) and len(theirs) and not _apart(mine, theirs):
            groups[groups == other] = one
    names = np.unique(groups)
    key = lambda name: ((groups == name).sum() < TWICE, -float(spent[groups == name].sum()))  # noqa: E731
    order = sorted(names.tolist(), key=key)
    return np.array([order.index(name) for name in groups.tolist()], np.int64)


def _apart(mine: Array, theirs: Array) -> bool:
    low, high = sorted((mine, theirs), key=median)
    in_order = (high[:, None] > low).mean()
    return in_order >= IN_ORDER and median(high) >= RATIO * median(low) > 0


def by_time(times: Array, numbers: Array, known: Known) -> Array | None:
    """The group of each of `times`, where two groups are as far apart in them as in the timeline; else None.

    The cut is their widest gap, with two steps at least on either side: a lone slow step is no kind. Noise
    has a widest gap, too. So it must be far wider than any other, or one kind must recur at even distance, by
    the `numbers` of the steps and of those whose work is known.
    """
    if known.groups.max(initial=0) != 1 or len(times) < 2 * TWICE or times.min() <= 0:
        return None
    ordered = np.sort(times).astype(float)
    gaps = np.diff(np.log(ordered))[TWICE - 1 : len(ordered) - TWICE]
    place = int(np.argmax(gaps)) + TWICE
    low, high = ordered[:place], ordered[place:]
    ratio = median(high) / median(low)
    if not _apart(low, high) or not 1 / RATIO <= ratio / known.ratio <= RATIO:
        return None
    found = np.where(times >= high[0], known.slow, 1 - known.slow)
    together = np.append(numbers, known.numbers), np.append(found, known.groups)
    return found if _wide(low, high) or in_turn(*together) else None


def _wide(low: Array, high: Array) -> bool:
    """Whether the gap between them is wider than those within: else they are the tail of one kind.

    Of 60 steps that scatter by 40 %, it takes 4 % of all samples for two kinds; at 20 %, none in 500.
    """
    within = max(float(np.diff(np.log(side)).max(initial=0.0)) for side in (low, high))
    gap = float(np.log(high[0] / low[-1]))
    return gap > WIDER * within and gap > DEEP * np.log(median(high) / median(low))


def in_turn(numbers: Array, groups: Array) -> bool:
    """Whether the rarer of two groups is every n-th step, without exception and at least thrice."""
    rarer = int(np.bincount(groups, minlength=2).argmin())
    mine, others = numbers[groups == rarer], numbers[groups != rarer]
    every = int(np.gcd.reduce(np.diff(np.sort(mine)))) if len(mine) >= IN_TURN else 0
    return every >= TWICE and not ((others - mine[0]) % every == 0).any()
