"""Result types of a replay: the JSON of `fathom what-if`. Fields are added, never renamed or dropped."""

from __future__ import annotations

import msgspec

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
    def label(self) -> str:
        """The name of the device for people."""
        return device_label(self.device, self.device_name)
