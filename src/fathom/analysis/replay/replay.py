"""Predict the step with changed durations: replays of the recorded windows, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import polars as pl
from msgspec.structs import replace

from fathom.analysis.entries import Entry, cause_of, idle_entry
from fathom.analysis.intervals import Array
from fathom.analysis.replay import naming
from fathom.analysis.replay.buckets import UNKNOWN_SIZES, Buckets, buckets_of
from fathom.analysis.replay.changes import BUCKET, EXPOSED, HIGH, LOW, Change
from fathom.analysis.replay.critical import critical_path
from fathom.analysis.replay.lengths import FELT, ReplayedSteps
from fathom.analysis.replay.loader import within_pace
from fathom.analysis.replay.results import Gain, Moved, Prediction
from fathom.analysis.results import Abstained, CriticalPart, LedgerRow
from fathom.analysis.steps import Clean
from fathom.analysis.subjects import gpu_name, label
from fathom.analysis.waits import HOOKED
from fathom.timing import interval
from fathom.units import NS_PER_MS, NS_PER_US

WRONG = 0.05  # relative error on the recorded step above which the model makes no predictions
WHAT = "prediction"


class Replay(ReplayedSteps):
    """The replay of one rank of a sounding. Building it reads the timelines of all ranks."""

    collectives: pl.DataFrame | None = None  # of the device, in the columns of `collectives_of`

    def calibrate(self, clean: Clean | None, ledger: Sequence[LedgerRow]) -> Replay:
        """Use the report's clean step, and its ledger, which limits gains; return self."""
        self.clean = clean
        self._rows = {}
        for entry in ledger if clean else ():
            self._rows[entry.entry] = self._rows.get(entry.entry, 0.0) + entry.ms
        return self

    def gain(self, changes: Sequence[Change]) -> Gain | Abstained:
        """Return the gain per (clean) step from the changes, or the reason why it cannot be predicted."""
        refusal = self._refusal or self._unknown_buckets(changes)
        return refusal or self._fed(changes, self._gains(changes, self.pace if self.clean else 1.0))

    def predict(self, changes: Sequence[Change]) -> Prediction:
        """Predict the step with the changes, and its ledger. Raises BadInputError for unknown names."""
        naming.check(self.model, changes)
        prediction = self._empty(changes)
        refusal = self._refusal or self._unknown_buckets(changes)
        if refusal is not None or self.device is None:
            prediction.abstained = [refusal] if refusal else []
            return prediction
        gain = self._gains(changes, 1.0)
        prediction.gain_ms = gain.ms
        prediction.gain_ci_ms = [gain.low, gain.high]
        prediction.predicted_ms, prediction.predicted_ci_ms = _less(self._recorded, gain)
        prediction.moved = self._moved(changes)
        prediction.notes = naming.notes(self.model, self.device.rank, changes)
        prediction.notes += [note for change in changes for note in self._of_buckets(change)]
        if self._left_out:
            prediction.notes.append(
                f"{self._left_out:,} ranks were not replayed: their lateness stays the same"
            )
        if len(self._steps()) < 2:
            prediction.notes.append(
                "only one step was recorded, so the interval does not cover the variation between steps"
            )
        self._add_clean(prediction, changes)
        return prediction

    def step_ms(self, changes: Sequence[Change] = ()) -> float | Abstained:
        """Return the mean of the replayed steps in ms, with profiling; or the reason why it is unknown."""
        return self._refusal or float(self._steps(changes).mean())

    @property
    def critical_path(self) -> list[CriticalPart]:
        """The chain of work over all ranks that determines the step; [] if the step cannot be replayed."""
        return [] if self._refusal else critical_path(self.model, self._device)

    @cached_property
    def _rows(self) -> dict[str, float]:
        """Milliseconds of the clean ledger by entry, which limit gains; empty before `calibrate`."""
        return {}

    @cached_property
    def _refusal(self) -> Abstained | None:
        if self.device is None:
            return Abstained(WHAT, "no timeline with a complete step was recorded")
        if self.error > WRONG:
            percent = f"{100 * self.error:.0f} %"
            return Abstained(
                WHAT, f"replayed without a change, the step differs by {percent} from the recorded one"
            )
        return None

    def _unknown_buckets(self, changes: Sequence[Change]) -> Abstained | None:
        """Return why the buckets that `changes` merge or split are unknown; None if they are known."""
        if not any(change.selector == BUCKET for change in changes):
            return None
        return Abstained(WHAT, self._buckets) if isinstance(self._buckets, str) else None

    @cached_property
    def _buckets(self) -> Buckets | str:
        """The buckets of gradients, which all parts then know, or the reason why they are unknown."""
        mine = [part for part in self.model.parts if part.rank == self._device.rank]
        if self.collectives is None or self.collectives.is_empty():
            return UNKNOWN_SIZES
        marks = self.model.timelines[self._device.rank].steps["mark_ns"].drop_nulls().sort().to_numpy()
        made = buckets_of(mine, self.collectives, marks, self._device.index is None)
        if isinstance(made, Buckets):
            for part in self.model.parts:
                part.buckets = made if part.burst in made.parts else None
        return made

    def _calling_ms(self, change: Change) -> float:
        """Return the host's time per step in calls that a change of buckets saves; it may not count."""
        if change.selector != BUCKET or isinstance(self._buckets, str):
            return 0.0
        before, after = self._buckets.count(change.factor or 0)
        return (before - after) * self._buckets.host_ns / self._marked / NS_PER_MS

    def _of_buckets(self, change: Change) -> list[str]:
        if change.selector != BUCKET or isinstance(self._buckets, str):
            return []
        before, after = (count / self._marked for count in self._buckets.count(change.factor or 0))
        fixed = self._buckets.fixed
        ns, low, high = (f"{value / NS_PER_US:.3g}" for value in (fixed.ns, fixed.low, fixed.high))
        source = "fitted to their sizes" if fixed.fitted else "assumed, as all have about one size"
        return [
            f"{before:.3g} all-reduces per step become {after:.3g}; each takes {ns} µs ({low} to {high}) "
            f"whatever its size, {source}"
        ]

    def _gains(self, changes: Sequence[Change], host: float) -> Gain:
        """Return the gain; its interval covers the variation between steps and the error of the model."""
        each = self._saved_ms(changes, host)
        ms = float(each.mean())
        low, high = interval(each, np.mean) or (ms, ms)
        constants = float(self._saved_ms(changes, host, typical=True).mean())
        wrong = abs(constants - ms) + self.error * abs(ms)
        low, high = low - wrong, high + wrong
        for bound in _bounds(changes):
            other = float(self._saved_ms(bound, host).mean())
            low, high = min(low, low + other - ms), max(high, high + other - ms)
        saved = sum(self._calling_ms(change) for change in changes)
        low, high = low + min(saved, 0.0), high + max(saved, 0.0)
        for pace in self._other_paces if self.clean else ():
            other = float(self._saved_ms(changes, pace).mean())
            low, high = min(low, other), max(high, other)
        return Gain(ms, low, high)

    def _saved_ms(self, changes: Sequence[Change], host: float, *, typical: bool = False) -> Array:
        """Return what `changes` save of each used step at a pace of the host, in ms."""
        return self._steps(host=host, typical=typical) - self._steps(changes, host=host, typical=typical)

    def _empty(self, changes: Sequence[Change]) -> Prediction:
        names = [str(change) for change in changes]
        if self.device is None:
            return Prediction(names, min(self.store.ranks, default=0), "", 0, None, None)
        count = int(self.device.used.sum())
        device = label(self.device.index)
        name = gpu_name(self.store.machine, self.device.index)
        return Prediction(
            names, self.device.rank, device, count, self._recorded, self.error, device_name=name
        )

    def _moved(self, changes: Sequence[Change]) -> list[Moved]:
        device = self._device
        before = device.by_entry(self._ledger)
        after = device.by_entry(device.ledger(self.model.times(changes).timeline(device.rank)))
        if any(change.selector == EXPOSED for change in changes):  # the step may be as long as the transfers
            left = float(self._steps(changes).mean()) - sum(after.values())
            entry = Entry.MOVING_BYTES if Entry.MOVING_BYTES in before else Entry.COMMUNICATION
            after[entry] = after.get(entry, 0.0) + max(left, 0.0)
        names = sorted({*before, *after}, key=lambda name: (-before.get(name, 0.0), name))
        return [Moved(name, before.get(name, 0.0), after.get(name, 0.0)) for name in names]

    def _limited(self, changes: Sequence[Change], gain: Gain) -> Gain:
        """Return the gain, limited to the rows of the clean ledger that the changes affect.

        Waits that hooks measure in clean steps are not replayed, because the profiled steps may differ.
        """
        hooked = [c for c in changes if c.selector in HOOKED and c.factor is not None and not c.pattern]
        if not self._rows or not changes or not all(change.of_the_host for change in changes):
            return gain
        if self._device.index is None and all(change.selector == "op" for change in changes):
            return self._of_clean_ops(changes)
        if len(hooked) == len(changes):
            rows = [(1 - (c.factor or 0.0)) * self._rows.get(idle_entry(c.selector), 0.0) for c in hooked]
            ms = sum(rows)
            around = max(gain.high - gain.low, 0.0) / 2 if gain.ms else WRONG * abs(ms)
            part = min(around / gain.ms, 1.0) if gain.ms > 0 else WRONG
            return Gain(ms, ms - part * abs(ms), ms + part * abs(ms))
        of_ops = any(change.selector == "op" for change in changes)
        most = sum(
            max(ms, 0.0)
            for entry, ms in self._rows.items()
            if cause_of(entry) or (of_ops and entry == Entry.OPS)
        )
        within = min(most / gain.ms, 1.0) if gain.ms > 0 else 1.0
        return Gain(gain.ms * within, gain.low * within, min(gain.high, max(most, gain.ms * within)))

    def _fed(self, changes: Sequence[Change], gain: Gain) -> Gain:
        """Return the gain, limited by the pace of loaders' workers."""
        if self.clean is None or any(change.selector == "input" for change in changes):
            return gain
        return within_pace(gain, self._clean_ms, self._fed_ms)

    @cached_property
    def _fed_ms(self) -> float:
        """The time per step in which loaders' workers make its batches; 0 if unknown."""
        ns = sum(part.fed_ns for part in self.model.parts if part.rank == self._device.rank)
        return ns / self._marked / NS_PER_MS

    @property
    def _clean_ms(self) -> float:
        """The clean step of which gains are a part: the mean one for the report's ledger."""
        assert self.clean is not None
        return self.clean.basis_ms if self._rows else self.clean.median_ms

    def _of_clean_ops(self, changes: Sequence[Change]) -> Gain:
        """Return the gain of changed ops on a processor: that of profiled steps, in which ops take longer."""
        profiled = float((self._steps() - self._steps(changes)).mean())
        recorded = self._device.by_entry(self._ledger).get(Entry.OPS, 0.0)
        ms = profiled * self._rows.get(Entry.OPS, 0.0) / recorded if recorded else 0.0
        return Gain(ms, ms - WRONG * abs(ms), ms + WRONG * abs(ms))

    def _add_clean(self, prediction: Prediction, changes: Sequence[Change]) -> None:
        if self.clean is None:
            return
        unlimited = self._limited(changes, self._gains(changes, self.pace))
        gain = self._fed(changes, unlimited)
        if gain.ms < unlimited.ms:
            prediction.notes.append(
                f"the loader's workers need {self._fed_ms:.3g} ms for the batches of a step"
            )
        step_ms = self._clean_ms
        prediction.clean_ms, prediction.clean_gain = step_ms, gain
        prediction.clean_predicted_ms, prediction.clean_ci_ms = _less(step_ms, gain)
        if step_ms > self.clean.median_ms * (1 + FELT):
            prediction.notes.append(
                "steps are uneven: the clean step is the mean step, including rare long ones"
            )
        if gain.low < gain.ms == gain.high:
            prediction.notes.append("the ledger holds no more of this time, so the gain cannot be larger")
        if self._other_paces:
            prediction.notes.append(
                "the device hides most of the host's time, so its pace is uncertain; the interval covers this"
            )


def _bounds(changes: Sequence[Change]) -> list[list[Change]]:
    """Return `changes` with the lowest and with the highest fixed time of collectives, if that matters."""
    if not any(change.selector == BUCKET for change in changes):
        return []
    return [
        [replace(c, pattern=bound) if c.selector == BUCKET else c for c in changes] for bound in (LOW, HIGH)
    ]


def _less(step_ms: float, gain: Gain) -> tuple[float, list[float]]:
    low, ms, high = (max(step_ms - saved, 0.0) for saved in (gain.high, gain.ms, gain.low))
    return ms, [low, high]
