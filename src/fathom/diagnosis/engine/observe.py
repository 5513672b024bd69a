"""Gains that were seen in the running program take the place of predicted ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from fathom.analysis.results import Trial
from fathom.diagnosis.engine.claims import Sized
from fathom.diagnosis.kinds import kinds


def observed(found: Iterable[Sized], tried: Mapping[str, Trial]) -> list[Sized]:
    """`found`, with what was observed by kind of trial.

    A trial leaves a cause out as a whole: of several findings that it answers the largest gets its gain, and
    the others keep what is predicted of them.
    """
    left = dict(tried)
    return [_seen(one, left) for one in sorted(found, key=lambda one: -one.weight)]


def _seen(one: Sized, left: dict[str, Trial]) -> Sized:
    seen = left.pop(kinds()[one.candidate.kind].trial or "", None)
    if seen is None:
        return one
    ms, low, high = (max(value, 0.0) for value in (seen.gain_ms, seen.low_ms, seen.high_ms))
    seen_in = seen.baseline_mean_ms
    return replace(one, ms=ms, low=low, high=high, observed=True, predicted=one.ms, step_ms=seen_in)
