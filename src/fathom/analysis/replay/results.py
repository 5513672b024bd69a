"""Result types of a replay: the JSON of `fathom what-if`. Fields are added, never renamed or dropped."""

from __future__ import annotations

import msgspec

from fathom.analysis import showing
from fathom.analysis.results import Abstained, device_label


class Gain(msgspec.Struct):
    """The time per step that a change saves, in ms, with an interval; negative if it costs time.

    It refers to the clean step if one was recorded, else to the profiled step.
    """

    ms: float
    low: float
    high: float


class Moved(msgspec.Struct):
    """An entry of the profiled ledger: milliseconds per step before and after the changes."""

    entry: str
    before_ms: float
    after_ms: float


class Prediction(msgspec.Struct):
    """A step with changed durations. Times are in ms; intervals are [low, high].

    `predicted_ms` and `gain_ms` are null if there is no prediction; `abstained` has the reason.
    """

    changes: list[str]
    rank: int
    device: str  # "cuda:0", "cpu"
    steps: int  # number of replayed steps
    recorded_ms: float | None  # mean of the used windows, with profiling
    error: float | None  # of the model: relative difference between a replay without changes and the record
    predicted_ms: float | None = None
    predicted_ci_ms: list[float] | None = None
    gain_ms: float | None = None
    gain_ci_ms: list[float] | None = None
    clean_ms: float | None = None
    clean_predicted_ms: float | None = None
    clean_ci_ms: list[float] | None = None
    clean_gain: Gain | None = None
    moved: list[Moved] = []
    notes: list[str] = []
    abstained: list[Abstained] = []
    device_name: str = ""

    @property
    def outcome(self) -> str:
        """The step before and after the changes: the clean step, or else the profiled one."""
        before, after, bounds = self.clean_ms, self.clean_predicted_ms, self.clean_ci_ms
        if before is None or after is None:
            before, after, bounds = self.recorded_ms, self.predicted_ms, self.predicted_ci_ms
        if before is None or after is None:
            return "; ".join(["no prediction", *(row.why for row in self.abstained)])
        return f"{showing.number(before)} ms → {showing.between(after, *(bounds or (None, None)))}"

    def __repr__(self) -> str:
        return showing.tagged("Prediction", f"{' '.join(self.changes)}: {self.outcome}")

    def _repr_html_(self) -> str:
        changed = (row for row in self.moved if row.before_ms != row.after_ms)
        pairs = ((row.entry, showing.number(row.before_ms), showing.number(row.after_ms)) for row in changed)
        lines = [f"{entry}: {before} ms → {after} ms" for entry, before, after in pairs]
        return showing.html(" ".join(self.changes), self.outcome, [*lines, *self.notes])

    @property
    def label(self) -> str:
        """The name of the device for people."""
        return device_label(self.device, self.device_name)
