"""What a step would take with changed durations: replays of the recorded windows, with an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from fathom.analysis.entries import cause_of, idle_entry
from fathom.analysis.intervals import Array
from fathom.analysis.ledger import Ledger
from fathom.analysis.recording import Timeline
from fathom.analysis.replay import naming
from fathom.analysis.replay.changes import Change
from fathom.analysis.replay.model import Model
from fathom.analysis.replay.recorded import Seen, clean_of, seen
from fathom.analysis.replay.results import Gain, Moved, Prediction
from fathom.analysis.results import Abstained, LedgerRow
from fathom.analysis.rows import INFLATED, busy_ms
from fathom.analysis.steps import Clean
from fathom.analysis.subjects import label
from fathom.analysis.waits import HOOKED
from fathom.errors import BadInputError
from fathom.sounding import Store
from fathom.timing import interval
from fathom.units import NS_PER_MS

WRONG = 0.05  # a model that misses the recorded step by more than this share predicts nothing
QUICKEST = 0.56  # of the time that it takes under the profiler: benchmarks/results/cost.json, launch_bound
FLOOR = QUICKEST / 2  # what no host falls below
FELT = 0.02  # of the step: less than this, and the clean step does not tell the host's pace
WHAT = "prediction"


class Replay:
    """The replay of one rank of a sounding. Building it reads the timelines of all ranks."""

    def __init__(
        self,
        store: Store,
        rank: int | None = None,
        kind: str | None = None,
        read: Mapping[int, Timeline] | None = None,
        known: Seen | None = None,
    ) -> None:
        """Raises BadInputError where `rank` was not recorded; None: the first with steps.

        It is of steps of `kind`, or for None of the kind that takes the most time. `read` are timelines by
        rank that were read already, and `known` is the device that was.
        """
        if rank is not None and rank not in store.ranks:
            ranks = ", ".join(str(r) for r in store.ranks)
            raise BadInputError(f"Rank {rank} was not recorded; this sounding holds rank {ranks or 'none'}.")
        self.store, self.model = store, Model.of(store, read)
        self._rows: dict[str, float] = {}
        self._made: dict[tuple[object, ...], Array] = {}
        wanted = self.model.timelines if rank is None else [rank]
        self.seen = known or next(filter(None, (seen(self.model.timelines[r], kind) for r in wanted)), None)

    def calibrate(self, clean: Clean | None, ledger: Sequence[LedgerRow]) -> Replay:
        """Use the clean step that the report is of, `clean`, and its ledger, which no gain of it exceeds."""
        self.clean = clean
        self._rows = {}
        for entry in ledger if clean else ():
            self._rows[entry.entry] = self._rows.get(entry.entry, 0.0) + entry.ms
        return self

    def gain(self, changes: Sequence[Change]) -> Gain | Abstained:
        """What the changes save of a step, the clean one if there is one; or why that cannot be told."""
        return self._refusal or self._gains(changes, self.pace if self.clean else 1.0)

    def predict(self, changes: Sequence[Change]) -> Prediction:
        """The step with the changes, and where its time moves. Raises BadInputError for unknown names."""
        naming.check(self.model, changes)
        found = self._empty(changes)
        if self._refusal is not None or self.seen is None:
            found.abstained = [self._refusal] if self._refusal else []
            return found
        gain = self._gains(changes, 1.0)
        found.gain_ms, found.gain_ci_ms = gain.ms, [gain.low, gain.high]
        found.predicted_ms, found.predicted_ci_ms = _less(self._recorded, gain)
        found.moved = self._moved(changes)
        found.notes = naming.notes(self.model, self.seen.rank, changes)
        if len(self._steps()) < 2:
            found.notes.append("only one step was recorded, so how much steps differ is not in the interval")
        self._add_clean(found, changes)
        return found

    def step_ms(self, changes: Sequence[Change] = ()) -> float | Abstained:
        """The mean of the replayed steps, as profiled."""
        return self._refusal or float(self._steps(changes).mean())

    @cached_property
    def clean(self) -> Clean | None:
        """The clean step, where one was recorded."""
        if self.seen is None:
            return None
        busy = 0.0 if self.seen.index is None else busy_ms(self._ledger)
        steps = self.model.timelines[self.seen.rank].every
        return clean_of(steps, self.seen.windows.kind, busy)

    @cached_property
    def error(self) -> float:
        """How far a replay that knows only constants for all slack is from the recorded step, as a share.

        With the recorded slack it is exact, unless records contradict each other: then that counts too.
        """
        both = (float(self._steps(typical=typical).mean()) for typical in (True, False))
        return max(abs(ms / self._recorded - 1) for ms in both)

    @cached_property
    def pace(self) -> float:
        """The host's clean time as a share of its profiled time: with it the replay takes the clean step.

        Where the device hides the host, it is QUICKEST. What the host's idle time cannot hold is left to the
        observer, as in the ledger.
        """
        if self.clean is None or self.seen is None:
            return 1.0
        if not self._pace_known:
            return QUICKEST
        if self.clean.median_ms >= self._recorded:
            return 1.0
        before = self.seen.by_entry(self._ledger)
        held = sum(before.get(entry, 0.0) for entry in INFLATED) if self.seen.index is not None else 0.0
        goal = max(self.clean.median_ms, self._recorded - held)
        low, high = FLOOR, 1.0
        for _ in range(12 if held > 0 else 0):
            middle = (low + high) / 2
            low, high = (middle, high) if self._steps(host=middle).mean() < goal else (low, middle)
        return high

    @cached_property
    def _ledger(self) -> Ledger:
        """As recorded."""
        return self._seen.recorded or self._seen.ledger(self.model.timelines[self._seen.rank])

    @cached_property
    def _recorded(self) -> float:
        windows = self._seen.windows
        return windows.total_ns / int(windows.used.sum()) / NS_PER_MS

    @cached_property
    def _refusal(self) -> Abstained | None:
        if self.seen is None:
            return Abstained(WHAT, "no timeline with a whole step was recorded")
        if self.error > WRONG:
            return Abstained(
                WHAT, f"replayed without a change, the step differs by {self.error:.0%} from the recorded one"
            )
        return None

    def _steps(self, changes: Sequence[Change] = (), *, host: float = 1.0, typical: bool = False) -> Array:
        """Milliseconds of each used step in a replay, which is made once."""
        one, long = self._seen, host if host < 1.0 and self._by_chance else 1.0
        key = (*changes, host, long, typical)
        if key not in self._made:
            times = self.model.times(changes, host=host, long=long, typical=typical)
            self._made[key] = one.steps_ms(self.model.timelines[one.rank], times.of(one.rank))
        return self._made[key]

    @cached_property
    def _by_chance(self) -> bool:
        """Whether clean steps have no room for what took long unrecorded: recorded ones then are others."""
        if self.clean is None or self.seen is None or self.seen.index is None:
            return False
        quick = self.model.times(host=FLOOR).of(self.seen.rank)
        lengths = self.seen.steps_ms(self.model.timelines[self.seen.rank], quick)
        return float(lengths.mean()) > self.clean.median_ms

    @property
    def _seen(self) -> Seen:
        assert self.seen is not None
        return self.seen

    def _gains(self, changes: Sequence[Change], host: float) -> Gain:
        """The interval holds how much steps differ, and by how much the model is wrong."""
        each = self._steps(host=host) - self._steps(changes, host=host)
        ms = float(each.mean())
        low, high = interval(each, np.mean) or (ms, ms)
        constants = self._steps(host=host, typical=True) - self._steps(changes, host=host, typical=True)
        wrong = abs(float(constants.mean()) - ms) + self.error * abs(ms)
        low, high = low - wrong, high + wrong
        if self.clean is not None and not self._pace_known:
            profiled = float((self._steps() - self._steps(changes)).mean())
            low, high = min(low, profiled), max(high, profiled)
        return Gain(ms, low, high)

    @cached_property
    def _pace_known(self) -> bool:
        """Whether the step would show it if the host were quicker than the profile says.

        A processor's step is the host's own: nothing hides it, and its ops take what they take.
        """
        return (
            self._seen.index is None or float(self._steps(host=QUICKEST).mean()) < (1 - FELT) * self._recorded
        )

    def _empty(self, changes: Sequence[Change]) -> Prediction:
        names = [str(change) for change in changes]
        if self.seen is None:
            return Prediction(names, min(self.store.ranks, default=0), "", 0, None, None)
        count = int(self.seen.used.sum())
        return Prediction(names, self.seen.rank, label(self.seen.index), count, self._recorded, self.error)

    def _moved(self, changes: Sequence[Change]) -> list[Moved]:
        one = self._seen
        before = one.by_entry(self._ledger)
        after = one.by_entry(one.ledger(self.model.times(changes).timeline(one.rank)))
        names = sorted({*before, *after}, key=lambda name: (-before.get(name, 0.0), name))
        return [Moved(name, before.get(name, 0.0), after.get(name, 0.0)) for name in names]

    def _held(self, changes: Sequence[Change], gain: Gain) -> Gain:
        """No more than the clean ledger's rows hold of what the changes act on.

        Waits that hooks measure in clean steps are not replayed: the recorded steps may have had others.
        """
        hooked = [c for c in changes if c.selector in HOOKED and c.factor is not None and not c.pattern]
        if not self._rows or not changes or not all(change.of_the_host for change in changes):
            return gain
        if len(hooked) == len(changes):
            rows = [(1 - (c.factor or 0.0)) * self._rows.get(idle_entry(c.selector), 0.0) for c in hooked]
            ms = sum(rows)
            around = max(gain.high - gain.low, 0.0) / 2 if gain.ms else WRONG * abs(ms)
            part = min(around / gain.ms, 1.0) if gain.ms > 0 else WRONG
            return Gain(ms, ms - part * abs(ms), ms + part * abs(ms))
        most = sum(ms for entry, ms in self._rows.items() if cause_of(entry) and ms > 0)
        within = min(most / gain.ms, 1.0) if gain.ms > 0 else 1.0
        return Gain(gain.ms * within, gain.low * within, min(gain.high, max(most, gain.ms * within)))

    def _add_clean(self, found: Prediction, changes: Sequence[Change]) -> None:
        if self.clean is None:
            return
        gain = self._held(changes, self._gains(changes, self.pace))
        step_ms = self.clean.basis_ms if self._rows else self.clean.median_ms
        found.clean_ms, found.clean_gain = step_ms, gain
        found.clean_predicted_ms, found.clean_ci_ms = _less(step_ms, gain)
        if step_ms > self.clean.median_ms * (1 + FELT):
            found.notes.append("steps are uneven: the clean step is the mean one, rare long steps included")
        if not self._pace_known:
            found.notes.append(
                "the device hides the host, whose pace unprofiled is not known; the interval allows for it"
            )


def _less(step_ms: float, gain: Gain) -> tuple[float, list[float]]:
    low, ms, high = (max(step_ms - saved, 0.0) for saved in (gain.high, gain.ms, gain.low))
    return ms, [low, high]
