"""The gain that each knob is expected to bring, from the findings and the account of the recorded program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fathom.analysis.results import Examination
from fathom.tuner.facts import Facts
from fathom.tuner.knobs import Knob, Value

MOST, LEAST = 0.95, 1e-4  # of the step; a value that loses time by its prediction comes last
LATER = 0.7  # factor of each further value of a knob, which lists its most likely value first


@dataclass(frozen=True)
class Prior:
    """The share of the step that a knob may save, and its source: findings, account or experience.

    `values` has the shares of values that are predicted for themselves.
    """

    share: float
    source: str
    because: tuple[str, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)

    def of(self, value: str) -> float:
        """Return the share that this value may save."""
        return self.values.get(value, self.share)


def priors(knobs: Iterable[Knob], examination: Examination, facts: Facts) -> dict[str, Prior]:
    """Return the prior of each knob by id: the gain of this remedy itself, and not that of other remedies."""
    gains = _gains(examination)
    return {knob.id: _prior(knob, gains, facts) for knob in knobs}


def _gains(examination: Examination) -> dict[str, float]:
    """Return the predicted gain of each kind of finding, as a share of the step."""
    step_ms = examination.step.basis_ms
    gains: dict[str, float] = {}
    for finding in examination.findings if step_ms else ():
        if finding.gain_ms and step_ms:
            share = min(MOST, finding.gain_ms / step_ms)
            gains[finding.id] = max(gains.get(finding.id, 0.0), share)
    return gains


def _prior(knob: Knob, gains: Mapping[str, float], facts: Facts) -> Prior:
    prior = _of_knob(knob, gains, facts)
    values = {value.name: share for value in knob.values if (share := _of_value(value, gains, facts, prior))}
    because = [kind for value in knob.values for kind in value.suggested_by if kind in gains]
    source = "findings" if because else "account" if values and prior.source == "experience" else prior.source
    return Prior(prior.share, source, (*prior.because, *because), values)


def _of_value(value: Value, gains: Mapping[str, float], facts: Facts, prior: Prior) -> float | None:
    """Return the share that this value is predicted to save for itself; None for that of its knob."""
    own = max((gains[kind] for kind in value.suggested_by if kind in gains), default=None)
    workers = (value.acts.get("loader") or {}).get("num_workers")
    if isinstance(workers, int) and workers in facts.by_workers:
        return max(own or LEAST, min(MOST, facts.by_workers[workers]))
    return None if own is None else max(own, prior.share)


def _of_knob(knob: Knob, gains: Mapping[str, float], facts: Facts) -> Prior:
    kinds = tuple(kind for kind in gains if kind in knob.suggested_by)
    if kinds:
        return Prior(max(gains[kind] for kind in kinds), "findings", kinds)
    share = sum(facts.shares.get(category, 0.0) for category in knob.acts_on)
    if share:
        return Prior(knob.saves * min(share, 1.0), "account")
    return Prior(0.0 if knob.acts_on else knob.saves, "experience")


def in_order(knobs: Iterable[Knob], known: dict[str, Prior]) -> list[tuple[Knob, Value]]:
    """Return every value of every knob, the most promising first."""
    ranked = [
        (known[knob.id].of(value.name) * LATER ** _place(known[knob.id], value.name, place), knob, value)
        for knob in knobs
        for place, value in enumerate(knob.values)
    ]
    return [(knob, value) for _, knob, value in sorted(ranked, key=lambda row: -row[0])]


def _place(prior: Prior, value: str, place: int) -> int:
    """Return 0 for a value that is predicted for itself, whose place in the list says nothing."""
    return 0 if value in prior.values else place


def predicted(choice: Mapping[str, str], known: Mapping[str, Prior]) -> float:
    """Return the share of the step that these values of knobs are expected to save together."""
    left = 1.0
    for knob, value in choice.items():
        left *= 1 - known[knob].of(value) if knob in known else 1.0
    return 1 - left
