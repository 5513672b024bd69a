"""Waits of steps that are too short to be sampled one by one: their shares of the samples in clean steps."""

from __future__ import annotations

import msgspec
import numpy as np

from fathom.analysis.intervals import (
    NOTHING,
    Array,
    Spans,
    containing,
    covered,
    intersect,
    merge,
    subtract,
    union,
)
from fathom.analysis.sampled import BLOCKED, NO_WORK, PEERS, PYTHON, Label, Samples
from fathom.analysis.steps import Stretch
from fathom.timing import median

PLACED = 200  # samples in profiled steps: with as many, these steps show their own waits
ENOUGH = 10  # samples in clean steps, whose shares then have a standard error of up to 16 points
LONG = 2.0  # times the median step: longer steps are not usual ones
WAITS = (NO_WORK, BLOCKED, PEERS)


class ShortWaits(msgspec.Struct, frozen=True):
    """The nanoseconds that a thread waits in a usual clean step, by label, and the profiled `steps`."""

    thread: int
    ns: dict[Label, float]
    steps: Spans

    def place(self, parts: list[tuple[Label, Spans]]) -> list[tuple[Label, Spans]]:
        """Return `parts` of the thread's time, in which each step waits as long as a usual clean step does.

        Python and waits share the time that they have together in a step. Each interval of it is cut in the
        same proportions, because nothing shows which ones hold the waits.
        """
        own = [(label, intersect(spans, self.steps)) for label, spans in parts if _shares(label)]
        pool = intersect(merge(NOTHING, *(spans for _, spans in own)), self.steps)
        total = covered(pool, *self.steps)
        scale = np.minimum(total / max(sum(self.ns.values()), 1.0), 1.0)
        waits = {label: scale * ns for label, ns in self.ns.items()}
        left = total - sum(waits.values(), np.zeros(len(total)))
        python = {label: covered(spans, *self.steps) for label, spans in own if label[0] == PYTHON}
        known = sum(python.values(), np.zeros(len(total)))
        python = {label: left * ns / np.maximum(known, 1.0) for label, ns in python.items()}
        python[PYTHON, ""] = python.get((PYTHON, ""), 0.0) + np.where(known, 0.0, left)
        rest = [(label, subtract(spans, pool)) for label, spans in parts]
        cut = self._cut(pool, python | waits)
        return [(label, spans) for label, spans in [*rest, *cut] if len(spans.starts)]

    def _cut(self, pool: Spans, ns: dict[Label, Array]) -> list[tuple[Label, Spans]]:
        """Return the parts of each interval of `pool` in the proportions that `ns` has in its step."""
        ends = np.cumsum([np.zeros(len(self.steps.starts)), *ns.values()], axis=0)
        bounds = (ends / np.maximum(ends[-1], 1.0))[:, containing(self.steps, pool.starts)]
        cuts = pool.starts + np.rint(bounds * (pool.ends - pool.starts)).astype(np.int64)
        cuts[-1] = pool.ends
        return [(label, union(*cuts[i : i + 2])) for i, label in enumerate(ns)]


def _shares(label: Label) -> bool:
    return label[0] in (PYTHON, *WAITS)


def short_waits(samples: Samples, clean: list[Stretch], profiled: Spans, own: int = 0) -> ShortWaits | None:
    """Return the waits of the `profiled` steps from `samples` in clean steps; None if these are too few.

    They are too few if there are fewer than the `own` samples of profiled steps. Usual steps of `clean` are
    shorter than LONG times their median, so that rare long steps do not count.
    """
    each = np.array(sorted((start, end) for run in clean for *_, start, end in run.host_spans()), np.int64)
    lengths = each[:, 1] - each[:, 0]
    usual_ns = median(lengths)
    usual = each[lengths < LONG * usual_ns].T
    inside = containing(Spans(*usual), samples.times) >= 0
    if inside.sum() < max(ENOUGH, own):
        return None
    counts = np.bincount(samples.label[inside], minlength=len(samples.labels))
    ns = {
        label: usual_ns * float(count) / float(inside.sum())
        for label, count in zip(samples.labels, counts, strict=True)
        if count and label[0] in WAITS
    }
    return ShortWaits(samples.thread, ns, profiled)
