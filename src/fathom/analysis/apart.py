"""Steps of one kind that do different work: told apart by their ops or kernels, never by their time alone.

Two steps are alike if what they ran is, by name (and, of kernels, launch shape) and number. What hangs
together by likeness is one kind, however it drifts. Kinds stay apart if their time does, too: by at least
half, and nowhere between. So noise splits nothing, and neither do shapes that change from step to step.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl

from fathom.analysis.intervals import Array
from fathom.timing import median

OTHER = "+kind "  # what other work of the kind with most time is marked by: `train+kind 2`
UNLIKE = 0.2  # of what two steps ran: from here on it differs
MOST_KINDS = 3  # with more, shapes change from step to step
RATIO = 1.5  # between the times of two kinds, at least
LEAST, MOST = 4, 512  # steps of a timeline that can be compared
USUAL = 2 / 3  # of all steps: so many of one kind make the median theirs
TWICE = 2


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
    times = (clean["end_ns"] - clean["mark_ns"]).to_numpy() if host else np.zeros(0)
    told = by_time(times, groups, spent)
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
    """`groups` without those whose times overlap, by falling time altogether; too many groups are one.

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
    return float(high.min()) > float(low.max()) and median(high) >= RATIO * median(low) > 0


def by_time(times: Array, groups: Array, spent: Array) -> Array | None:
    """The group of each of `times`, where two groups are as far apart in them as in `spent`; else None.

    The cut is their widest gap, with two steps at least on either side: a lone slow step is no kind.
    """
    if groups.max(initial=0) != 1 or len(times) < 2 * TWICE or times.min() <= 0:
        return None
    ordered = np.sort(times).astype(float)
    gaps = np.diff(np.log(ordered))[TWICE - 1 : len(ordered) - TWICE]
    place = int(np.argmax(gaps)) + TWICE
    low, high = ordered[:place], ordered[place:]
    ratio = median(high) / median(low)
    slow = int(median(spent[groups == 1]) > median(spent[groups == 0]))
    known = median(spent[groups == slow]) / median(spent[groups == 1 - slow])
    if not _apart(low, high) or not 1 / RATIO <= ratio / known <= RATIO or not _wide(low, high):
        return None
    return np.where(times >= high[0], slow, 1 - slow)


def _wide(low: Array, high: Array) -> bool:
    """Whether the gap between them is wider than any within: else they are the tail of one kind."""
    within = max(float(np.diff(np.log(side)).max(initial=0.0)) for side in (low, high))
    return float(np.log(high[0] / low[-1])) > within
