"""Gains of findings, predicted by replaying the recorded timeline or measured by a trial in the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from fathom.analysis import Abstained
from fathom.analysis.replay import Gain, parse
from fathom.analysis.results import Trial
from fathom.diagnosis.engine.claims import Sized
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.rules import Candidate
from fathom.diagnosis.signals import Signals, UnknownSignalError
from fathom.errors import FathomError

MOST = 12  # replays per sounding: each takes a tenth of a second or more
Replayed = Callable[[tuple[str, ...]], Gain | Abstained | None]
Known = dict[tuple[str, ...], Gain | Abstained | None]
UNREPLAYED = 0.5  # of the gain: uncertainty without a replay


def gain_of(signals: Signals, changes: tuple[str, ...]) -> Gain | Abstained | None:
    """Return the gain of the changes by replay; None if no launches were recorded, which a replay needs."""
    if signals.get("host.launches").value == 0:
        return None
    try:
        return signals["step.replay"].gain([parse(change) for change in changes])
    except (UnknownSignalError, FathomError) as reason:
        return Abstained("prediction", str(reason))
    except Exception as error:
        return Abstained("prediction", f"the replay failed: {type(error).__name__}: {error}")


def predict(
    candidates: Iterable[Candidate], replayed: Replayed, step_ms: float, idle_ms: float | None = None
) -> tuple[list[Sized], list[Abstained]]:
    """Predict the gain of each candidate, largest claims first, with at most MOST replays.

    No gain exceeds the step. If only the host gets faster, no gain exceeds the device's idle time `idle_ms`.
    """
    known: Known = {}
    sized: list[Sized] = []
    left_out: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: -sum(claim.ms for claim in c.claims)):
        asked = ((*candidate.given, *candidate.changes), candidate.given) if candidate.changes else ()
        wanted = [changes for changes in asked if changes and changes not in known]
        if wanted and len(known) + len(wanted) > MOST:
            if candidate.costless:  # reported without a gain
                why = f"{MOST} larger gains were predicted first"
                sized.append(Sized(replace(candidate, claims=[], changes=(), unpredicted=why), None))
            else:
                left_out.append(candidate)
            continue
        known |= {changes: replayed(changes) for changes in wanted}
        most = step_ms if idle_ms is None or not _of_the_host(candidate) else min(step_ms, idle_ms)
        sized.append(_sized(candidate, known, most))
    refused = dict.fromkeys(gain.why for gain in known.values() if isinstance(gain, Abstained))
    kinds_left = dict.fromkeys(f"finding {candidate.kind}" for candidate in left_out)
    return sized, [
        *(Abstained("gains of findings", why) for why in refused),
        *(Abstained(kind, f"{MOST} larger gains were predicted first") for kind in kinds_left),
    ]


def _of_the_host(candidate: Candidate) -> bool:
    """Return whether the candidate's changes affect only host time."""
    return bool(candidate.changes) and all(parse(change).of_the_host for change in candidate.changes)


def _sized_by_claims(candidate: Candidate, most: float) -> Sized:
    """Return the claimed device time as the gain, because a replay needs launches."""
    ms = min(sum(claim.ms for claim in candidate.claims), most)
    return Sized(candidate, ms, (1 - UNREPLAYED) * ms, min((1 + UNREPLAYED) * ms, most), alone=ms)


def _sized(candidate: Candidate, known: Known, most: float) -> Sized:
    if candidate.changes and known[(*candidate.given, *candidate.changes)] is None:
        return _sized_by_claims(candidate, most)
    if not candidate.changes:
        gain: Gain | Abstained | None = None if candidate.gain_ms is None else Gain(*[candidate.gain_ms] * 3)
    else:
        gain = _beyond(known[(*candidate.given, *candidate.changes)], known.get(candidate.given))
    if gain is None or isinstance(gain, Abstained):
        return Sized(candidate, None)
    part = candidate.part if candidate.changes else 1.0
    wrong = candidate.doubt * abs(part * gain.ms)
    ms, low, high = part * gain.ms, part * gain.low - wrong, part * gain.high + wrong
    within = min(most / ms, 1.0) if ms > 0 else 1.0
    return Sized(candidate, ms * within, max(low, 0.0) * within, min(high, most), alone=ms * within)


def _beyond(both: Gain | Abstained | None, given: Gain | Abstained | None) -> Gain | Abstained | None:
    """Return the gain beyond `given`, with the wider of the two intervals."""
    if not isinstance(both, Gain) or not isinstance(given, Gain):
        return both
    ms = both.ms - given.ms
    below = max(both.ms - both.low, given.ms - given.low)
    return Gain(ms, ms - below, ms + max(both.high - both.ms, given.high - given.ms))


def observed(candidates: Iterable[Sized], tried: Mapping[str, Trial]) -> list[Sized]:
    """Return the candidates with the gains that trials measured.

    A trial removes a cause completely. If several candidates share a trial, the largest gets the measured
    gain and the others keep their predictions.
    """
    left = dict(tried)
    return [_seen(sized, left) for sized in sorted(candidates, key=lambda sized: -sized.weight)]


def _seen(sized: Sized, left: dict[str, Trial]) -> Sized:
    seen = left.pop(kinds()[sized.candidate.kind].trial or "", None)
    if seen is None:
        return sized
    ms, low, high = (max(value, 0.0) for value in (seen.gain_ms, seen.low_ms, seen.high_ms))
    seen_in = seen.baseline_mean_ms
    return replace(
        sized, ms=ms, low=low, high=high, alone=ms, observed=True, predicted=sized.ms, step_ms=seen_in
    )
