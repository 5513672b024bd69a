"""Gains measured in the running program replace predicted ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from fathom.analysis.results import Trial
from fathom.diagnosis.engine.claims import Sized
from fathom.diagnosis.kinds import kinds


def observed(candidates: Iterable[Sized], tried: Mapping[str, Trial]) -> list[Sized]:
    """The candidates, with the gains that trials measured.

    A trial leaves out a cause completely. If several candidates share a trial, the largest gets its gain and
    the others keep their prediction.
    """
    left = dict(tried)
    return [_seen(sized, left) for sized in sorted(candidates, key=lambda sized: -sized.weight)]


def _seen(sized: Sized, left: dict[str, Trial]) -> Sized:
    seen = left.pop(kinds()[sized.candidate.kind].trial or "", None)
    if seen is None:
        return sized
    ms, low, high = (max(value, 0.0) for value in (seen.gain_ms, seen.low_ms, seen.high_ms))
    seen_in = seen.baseline_mean_ms
    return replace(sized, ms=ms, low=low, high=high, observed=True, predicted=sized.ms, step_ms=seen_in)
