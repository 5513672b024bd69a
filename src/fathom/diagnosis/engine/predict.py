"""What mending a cause saves: a replay of the recorded timeline with its changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fathom.analysis import Abstained
from fathom.analysis.replay import Gain, parse
from fathom.diagnosis.engine.claims import Sized
from fathom.diagnosis.rules import Candidate
from fathom.diagnosis.signals import Signals, UnknownSignalError
from fathom.errors import FathomError

MOST = 12  # replays of one sounding: each takes a tenth of a second and more
Replayed = Callable[[tuple[str, ...]], Gain | Abstained | None]
Known = dict[tuple[str, ...], Gain | Abstained | None]
UNREPLAYED = 0.5  # of the gain: the doubt in what no replay has told


def gain_of(signals: Signals, changes: tuple[str, ...]) -> Gain | Abstained | None:
    """None where the recording holds no launches, without which nothing moves in a replay."""
    if signals.get("host.launches").value == 0:
        return None
    try:
        return signals["step.replay"].gain([parse(change) for change in changes])
    except (UnknownSignalError, FathomError) as reason:
        return Abstained("prediction", str(reason))
    except Exception as error:
        return Abstained("prediction", f"the replay failed: {type(error).__name__}: {error}")


def predict(
    found: Iterable[Candidate], replayed: Replayed, step_ms: float, idle_ms: float | None = None
) -> tuple[list[Sized], list[Abstained]]:
    """Each candidate with its gain; those that claim most first, and no more than MOST replays.

    No gain exceeds the step, and none of a quicker host `idle_ms`, for which the device is idle.
    """
    known: Known = {}
    sized: list[Sized] = []
    left_out: list[Candidate] = []
    for one in sorted(found, key=lambda c: -sum(claim.ms for claim in c.claims)):
        wanted = [w for w in ((*one.given, *one.changes), one.given) if w and one.changes and w not in known]
        if wanted and len(known) + len(wanted) > MOST:
            left_out.append(one)
            continue
        known |= {changes: replayed(changes) for changes in wanted}
        most = step_ms if idle_ms is None or not _of_the_host(one) else min(step_ms, idle_ms)
        sized.append(_sized(one, known, most))
    return sized, [*_refusals(known.values()), *_unpredicted(left_out)]


def _of_the_host(one: Candidate) -> bool:
    """Whether what it changes is the host's time alone."""
    return bool(one.changes) and all(parse(change).of_the_host for change in one.changes)


def _sized_by_claims(one: Candidate, most: float) -> Sized:
    """Where no launches were recorded nothing can be replayed: the device's own rows are what is saved."""
    ms = min(sum(claim.ms for claim in one.claims), most)
    return Sized(one, ms, (1 - UNREPLAYED) * ms, min((1 + UNREPLAYED) * ms, most))


def _sized(one: Candidate, known: Known, most: float) -> Sized:
    if one.changes and known[(*one.given, *one.changes)] is None:
        return _sized_by_claims(one, most)
    if not one.changes:
        gain: Gain | Abstained | None = None if one.gain_ms is None else Gain(*[one.gain_ms] * 3)
    else:
        gain = _beyond(known[(*one.given, *one.changes)], known.get(one.given))
    if gain is None or isinstance(gain, Abstained):
        return Sized(one, None)
    part = one.part if one.changes else 1.0
    wrong = one.doubt * abs(part * gain.ms)
    ms, low, high = part * gain.ms, part * gain.low - wrong, part * gain.high + wrong
    within = min(most / ms, 1.0) if ms > 0 else 1.0
    return Sized(one, ms * within, max(low, 0.0) * within, min(high, most))


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
