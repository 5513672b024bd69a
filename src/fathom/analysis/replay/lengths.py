"""The lengths of the recorded steps in a replay, and the pace of the host in clean steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import polars as pl

from fathom.analysis.intervals import Array, Spans
from fathom.analysis.ledger import Ledger
from fathom.analysis.peers import Meetings
from fathom.analysis.recording import Timeline
from fathom.analysis.replay.changes import EXPOSED, Change
from fathom.analysis.replay.model import FLOOR, QUICKEST, UNDISTURBED, Model, pace_for
from fathom.analysis.replay.recorded import ReplayedDevice, clean_of, first_device
from fathom.analysis.replay.weights import moving_ns
from fathom.analysis.rows import INFLATED, busy_ms
from fathom.analysis.steps import Clean
from fathom.errors import BadInputError
from fathom.sounding import MOST_CACHED, Store
from fathom.units import NS_PER_MS

FELT = 0.02  # of the step: if the host's pace changes it by less, the clean step does not show the pace
OPEN = 1.05  # the host's pace is uncertain if the host may be slower by more than this factor
FLAT = 0.005  # of the step, by which it may be longer than with the fastest host and still hide the host
MOST_LATE = 4  # ranks that others wait for, replayed of a large job


class ReplayedSteps:
    """The steps of one rank, in replays with changed durations and another pace of the host."""

    def __init__(
        self,
        store: Store,
        rank: int | None = None,
        kind: str | None = None,
        read: Mapping[int, Timeline] | None = None,
        known: ReplayedDevice | None = None,
        met: Meetings | None = None,
        late: Sequence[int] = (),
    ) -> None:
        """Replay steps of `kind` of `rank`.

        The defaults are the kind with the most time and the first rank with steps. `read` maps ranks to
        timelines that were already read. `known` is the device, if it was already chosen. `met` has the
        arrivals at collectives, if they are known. Of a large job, only `rank` (by default the first) and the
        first of the ranks `late` are replayed; the others arrive as recorded. Raises BadInputError if `rank`
        was not recorded.
        """
        if rank is not None and rank not in store.ranks:
            ranks = ", ".join(str(r) for r in store.ranks)
            others = f"use one of: {ranks}" if ranks else "the recording has no ranks"
            raise BadInputError(f"Rank {rank} was not recorded; {others}.")
        chosen = _replayed(store, rank, late)
        self.store, self.model = store, Model.of(store, read, met, chosen)
        self._left_out = len(store.ranks) - len(chosen)
        self._made: dict[tuple[object, ...], Array] = {}
        wanted = self.model.timelines if rank is None else [rank]
        self.device = known or next(
            filter(None, (first_device(self.model.timelines[r], kind) for r in wanted)), None
        )

    @cached_property
    def clean(self) -> Clean | None:
        """The clean step, if one was recorded."""
        if self.device is None:
            return None
        busy = 0.0 if self.device.index is None else busy_ms(self._ledger)
        steps = self.model.timelines[self.device.rank].every
        return clean_of(steps, self.device.windows.kind, busy)

    @cached_property
    def error(self) -> float:
        """Relative error of a replay of the recorded step that uses constants for all slack.

        A replay with the recorded slack is exact, unless records contradict each other. The larger of both
        errors counts.
        """
        both = (float(self._steps(typical=typical).mean()) for typical in (True, False))
        return max(abs(ms / self._recorded - 1) for ms in both)

    @cached_property
    def pace(self) -> float:
        """Ratio of clean to profiled host time for which the replay is as long as the clean step.

        It is the usual one if the device hides the host. If it hides it in clean steps only, these show how
        slow the host may be at most, and if it nearly hides it, they show a range. A difference beyond the
        host's idle time counts as profiling overhead, as in the ledger.
        """
        if self.clean is None or self.device is None:
            return 1.0
        if not self._pace_known:
            return self._usual_pace
        if self.clean.median_ms >= self._recorded or self._host_ms <= 0:
            return 1.0
        if self._hidden:
            return min(self._usual_pace, self._slowest)
        shown = self._pace_of(self._goal)
        return min(max(self._usual_pace, shown), self._other_paces[-1]) if self._other_paces else shown

    @property
    def _goal(self) -> float:
        """The length of the clean step that the host's pace can explain."""
        assert self.clean is not None
        return max(self.clean.median_ms, self._recorded - self._host_ms)

    @cached_property
    def _host_ms(self) -> float:
        """The idle time per step that the host caused; 0 on a processor."""
        before = {} if self._device.index is None else self._device.by_entry(self._ledger)
        return sum(before.get(entry, 0.0) for entry in INFLATED)

    @cached_property
    def _hidden(self) -> bool:
        """Whether the device hides the host in clean steps, which are as short as with the fastest host."""
        return self._pace_known and self._device.index is not None and self._goal < self._unhurried

    @property
    def _slowest(self) -> float:
        """The slowest pace of a host that the device hides."""
        return self._pace_of(self._unhurried) if self._pace_known else 1.0

    @cached_property
    def _other_paces(self) -> tuple[float, ...]:
        """Other paces that the host may have in clean steps, the slowest last; none if its pace is known.

        A device that nearly hides the host leaves the pace uncertain: a step that is longer or shorter by the
        error of a replay, FELT, has a much slower or quicker host.
        """
        if not self._pace_known or self._hidden:
            return (self._slowest,)
        if self._device.index is None:
            return ()
        quicker, slower = (self._pace_of((1 + sign * FELT) * self._goal) for sign in (-1, 1))
        return (quicker, slower) if slower > OPEN * self._pace_of(self._goal) else ()

    @cached_property
    def _unhurried(self) -> float:
        """The longest step in ms that a faster host would hardly shorten."""
        return (1 + FLAT) * float(self._steps(host=FLOOR).mean())

    def _pace_of(self, goal: float) -> float:
        return pace_for(goal, lambda host: float(self._steps(host=host).mean()), self._recorded)

    @property
    def _usual_pace(self) -> float:
        """The pace of recordings made in the same way, which matters if the step does not show its own."""
        ranks = {rank.rank: rank.facts for rank in self.store.manifest.ranks}
        way = ranks.get(self._device.rank, {}).get("timeline")
        return UNDISTURBED if way == "cupti" else QUICKEST

    @cached_property
    def _ledger(self) -> Ledger:
        """The recorded ledger."""
        return self._device.recorded or self._device.ledger(self.model.timelines[self._device.rank])

    @cached_property
    def _recorded(self) -> float:
        windows = self._device.windows
        return windows.total_ns / int(windows.used.sum()) / NS_PER_MS

    def _steps(self, changes: Sequence[Change] = (), *, host: float = 1.0, typical: bool = False) -> Array:
        """Return the length of each used step in a replay, in ms; cached."""
        device, long = self._device, host if host < 1.0 and self._by_chance else 1.0
        key = (*changes, host, long, typical)
        if key not in self._made:
            times = self.model.times(changes, host=host, long=long, typical=typical)
            self._made[key] = np.maximum(
                device.steps_ms(self.model.timelines[device.rank], times.of(device.rank)),
                self._moving_ms(changes),
            )
        return self._made[key]

    def _moving_ms(self, changes: Sequence[Change]) -> float:
        """Return the time per step in which collectives move bytes, which bounds a step that hides them all.

        It is that of the busiest stream; 0 if `changes` do not hide them.
        """
        others = [change for change in changes if change.selector != EXPOSED]
        if len(others) == len(changes):
            return 0.0
        parts = [part for part in self.model.parts if part.rank == self._device.rank]
        windows = self._device.windows_in(self.model.timelines[self._device.rank])
        used = Spans(windows.starts[windows.used], windows.ends[windows.used])
        ns = sum((moving_ns(part, others, used) for part in parts), Counter[int]())
        return max(ns.values(), default=0.0) / len(used.starts) / NS_PER_MS

    @cached_property
    def _by_chance(self) -> bool:
        """Return whether a replay with the fastest host takes longer than the clean step.

        If so, unrecorded stretches in profiled steps are longer than usual.
        """
        if self.clean is None or self.device is None or self.device.index is None:
            return False
        quick = self.model.times(host=FLOOR).of(self.device.rank)
        lengths = self.device.steps_ms(self.model.timelines[self.device.rank], quick)
        return float(lengths.mean()) > self.clean.median_ms

    @property
    def _marked(self) -> int:
        """The number of recorded steps of the rank, used or not."""
        steps = self.model.timelines[self._device.rank].steps
        return max(steps.filter(pl.col("parent").is_null()).height, 1)

    @property
    def _device(self) -> ReplayedDevice:
        assert self.device is not None
        return self.device

    @cached_property
    def _pace_known(self) -> bool:
        """Whether a faster host would shorten the step, so that the clean step shows the host's pace.

        On a processor, the step is the host's work, which nothing hides.
        """
        return (
            self._device.index is None
            or float(self._steps(host=QUICKEST).mean()) < (1 - FELT) * self._recorded
        )


def _replayed(store: Store, rank: int | None, late: Sequence[int]) -> list[int]:
    """Return the ranks to replay: all, or those of a large job that matter most."""
    if len(store.ranks) <= MOST_CACHED:
        return store.ranks
    first = store.ranks[0] if rank is None else rank
    return sorted({first, *late[:MOST_LATE]})
