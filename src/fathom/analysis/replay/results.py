"""What a replay says: the contract of `fathom what-if --json`. Fields are added, never renamed or dropped."""

from __future__ import annotations

import msgspec

from fathom.analysis.results import Abstained


class Gain(msgspec.Struct):
    """What a change saves of a step, in milliseconds with an interval; negative where it costs.

    Of the clean step where one was recorded, else of the step as profiled.
    """

    ms: float
    low: float
    high: float


class Moved(msgspec.Struct):
    """An entry of the ledger, milliseconds a step before and after, as profiled."""

    entry: str
    before_ms: float
    after_ms: float


class Prediction(msgspec.Struct):
    """A step with changed durations. Milliseconds; intervals are [low, high].

    `predicted_ms` and `gain_ms` are null where the prediction is abstained from.
    """

    changes: list[str]
    rank: int
    device: str  # "cuda:0", "cpu"
    steps: int  # that were replayed
    recorded_ms: float | None  # mean of the used windows, as profiled
    error: float | None  # of the model: how far a replay without changes is from the recording, as a share
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
