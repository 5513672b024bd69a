"""What mending a cause saves: a replay of the recorded timeline with its changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fathom.analysis import Abstained
from fathom.analysis.replay import Gain
from fathom.diagnosis.engine.claims import Sized
from fathom.diagnosis.rules import Candidate

MOST = 12  # replays of one sounding: each takes a tenth of a second and more
Replayed = Callable[[tuple[str, ...]], Gain | Abstained | None]
Known = dict[tuple[str, ...], Gain | Abstained | None]
UNREPLAYED = 0.5  # of the gain: the doubt in what no replay has told


def predict(
    found: Iterable[Candidate], replayed: Replayed, step_ms: float
) -> tuple[list[Sized], list[Abstained]]:
    """Each candidate with its gain; those that claim most first, and no more than MOST replays."""
    known: Known = {}
    sized: list[Sized] = []
    left_out: list[Candidate] = []
    for one in sorted(found, key=lambda c: -sum(claim.ms for claim in c.claims)):
        wanted = [w for w in ((*one.given, *one.changes), one.given) if w and one.changes and w not in known]
        if wanted and len(known) + len(wanted) > MOST:
            left_out.append(one)
            continue
        known |= {changes: replayed(changes) for changes in wanted}
        sized.append(_sized(one, known, step_ms))
    return sized, [*_refusals(known.values()), *_unpredicted(left_out)]


def _sized_by_claims(one: Candidate, step_ms: float) -> Sized:
    """Where no launches were recorded nothing can be replayed: the device's own rows are what is saved."""
    ms = min(sum(claim.ms for claim in one.claims), step_ms)
    return Sized(one, ms, (1 - UNREPLAYED) * ms, min((1 + UNREPLAYED) * ms, step_ms))


def _sized(one: Candidate, known: Known, step_ms: float) -> Sized:
    if one.changes and known[(*one.given, *one.changes)] is None:
        return _sized_by_claims(one, step_ms)
    if not one.changes:
        gain: Gain | Abstained | None = None if one.gain_ms is None else Gain(*[one.gain_ms] * 3)
    else:
        gain = _beyond(known[(*one.given, *one.changes)], known.get(one.given))
    if gain is None or isinstance(gain, Abstained):
        return Sized(one, None)
    part = one.part if one.changes else 1.0
    wrong = one.doubt * abs(part * gain.ms)
    ms, low, high = part * gain.ms, part * gain.low - wrong, part * gain.high + wrong
    return Sized(one, min(ms, step_ms), max(low, 0.0), min(high, step_ms))


def _beyond(both: Gain | Abstained | None, given: Gain | Abstained | None) -> Gain | Abstained | None:
    """What is gained beyond `given`; as wide as the wider of the two."""
    if not isinstance(both, Gain) or not isinstance(given, Gain):
        return both
    ms = both.ms - given.ms
    below = max(both.ms - both.low, given.ms - given.low)
    return Gain(ms, ms - below, ms + max(both.high - both.ms, given.high - given.ms))


def _refusals(gains: Iterable[Gain | Abstained | None]) -> list[Abstained]:
    reasons = dict.fromkeys(gain.why for gain in gains if isinstance(gain, Abstained))
    return [Abstained("gains of findings", why) for why in reasons]


def _unpredicted(left_out: list[Candidate]) -> list[Abstained]:
    why = f"{MOST} larger ones were predicted"
    return [Abstained(f"finding {kind}", why) for kind in dict.fromkeys(one.kind for one in left_out)]
