"""Waits of steps that are too short to be sampled one by one: their shares of the samples in clean steps."""

from __future__ import annotations

import msgspec
import numpy as np

from fathom.analysis.intervals import NOTHING, Spans, containing, intersect, merge, subtract, union
from fathom.analysis.sampled import BLOCKED, NO_WORK, PEERS, PYTHON, Label, Samples
from fathom.analysis.steps import Stretch
from fathom.timing import median

PLACED = 50  # samples in profiled steps: so many show the waits themselves
ENOUGH = 10  # samples in clean steps: fewer give no shares, and these have an error of 15 %
LONG = 2.0  # times the median step: the usual step says nothing of longer ones
WAITS = (NO_WORK, BLOCKED, PEERS)


class ShortWaits(msgspec.Struct, frozen=True):
    """The nanoseconds that a thread waits in as many usual clean steps as there are profiled `steps`."""

    thread: int
    ns: dict[Label, float]
    steps: Spans

    def place(self, parts: list[tuple[Label, Spans]]) -> list[tuple[Label, Spans]]:
        """Return `parts` of the thread's time with as long waits in the steps as usual clean ones have.

        Python and waits share the time that they have together in `parts`. Each interval of it is cut in the
        same proportions, because nothing shows which ones hold the waits.
        """
        own = [
            (label, intersect(spans, self.steps)) for label, spans in parts if label[0] in (PYTHON, *WAITS)
        ]
        pool = merge(NOTHING, *(spans for _, spans in own))
        waits = _scaled(self.ns, min(pool.length, sum(self.ns.values())))
        python = {
            label: float(spans.length) for label, spans in own if label[0] == PYTHON and len(spans.starts)
        }
        python = _scaled(python or {(PYTHON, ""): 1.0}, pool.length - sum(waits.values()))
        rest = [(label, subtract(spans, pool)) for label, spans in parts]
        return [*((label, spans) for label, spans in rest if len(spans.starts)), *_cut(pool, python | waits)]


def _scaled(lengths: dict[Label, float], total: float) -> dict[Label, float]:
    factor = total / max(sum(lengths.values()), 1.0)
    return {label: factor * ns for label, ns in lengths.items()}


def _cut(pool: Spans, lengths: dict[Label, float]) -> list[tuple[Label, Spans]]:
    """Return the parts of each interval of `pool` in the proportions of `lengths`."""
    bounds = np.cumsum([0.0, *lengths.values()]) / max(sum(lengths.values()), 1.0)
    cuts = pool.starts + np.rint(np.outer(bounds, pool.ends - pool.starts)).astype(np.int64)
    cuts[-1] = pool.ends
    parts = ((label, union(*cuts[i : i + 2])) for i, label in enumerate(lengths))
    return [(label, spans) for label, spans in parts if len(spans.starts)]


def short_waits(samples: Samples, clean: list[Stretch], profiled: Spans) -> ShortWaits | None:
    """Return the waits of the `profiled` steps from `samples` in clean steps; None if these are too few.

    Usual steps of `clean` are shorter than LONG times their median, so that rare long steps do not count.
    """
    each = np.array(sorted((start, end) for run in clean for *_, start, end in run.host_spans()), np.int64)
    lengths = each[:, 1] - each[:, 0]
    usual_ns = median(lengths)
    usual = each[lengths < LONG * usual_ns].T
    inside = containing(Spans(*usual), samples.times) >= 0
    if inside.sum() < ENOUGH:
        return None
    counts = np.bincount(samples.label[inside], minlength=len(samples.labels))
    ns = {
        label: len(profiled.starts) * usual_ns * float(count) / float(inside.sum())
        for label, count in zip(samples.labels, counts, strict=True)
        if count and label[0] in WAITS
    }
    return ShortWaits(samples.thread, ns, union(*profiled))
