"""The gain that each knob is expected to bring, from the findings and the account of the recorded program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fathom.analysis.results import Examination
from fathom.tuner.facts import Facts
from fathom.tuner.knobs import Knob, Value

LATER = 0.7  # factor of each further value of a knob, which lists its most likely value first


@dataclass(frozen=True)
class Prior:
    """The share of the step that a knob may save, and its source: findings, account or experience."""

    share: float
    source: str
    because: tuple[str, ...] = ()


def priors(knobs: Iterable[Knob], examination: Examination, facts: Facts) -> dict[str, Prior]:
    """Return the prior of each knob by id."""
    return {knob.id: _prior(knob, examination, facts) for knob in knobs}


def _prior(knob: Knob, examination: Examination, facts: Facts) -> Prior:
    step_ms = examination.step.basis_ms or 0.0
    kinds = [f for f in examination.findings if f.id in knob.suggested_by and f.gain_ms]
    if kinds and step_ms:
        gains = [finding.gain_ms / step_ms for finding in kinds if finding.gain_ms]
        return Prior(min(0.95, max(gains)), "findings", tuple(finding.id for finding in kinds))
    share = sum(facts.shares.get(category, 0.0) for category in knob.acts_on)
    if share:
        return Prior(knob.saves * min(share, 1.0), "account")
    return Prior(0.0 if knob.acts_on else knob.saves, "experience")


def in_order(knobs: Iterable[Knob], known: dict[str, Prior]) -> list[tuple[Knob, Value]]:
    """Return every value of every knob, the most promising first."""
    ranked = [
        (known[knob.id].share * LATER**place, knob, value)
        for knob in knobs
        for place, value in enumerate(knob.values)
    ]
    return [(knob, value) for _, knob, value in sorted(ranked, key=lambda row: -row[0])]


def predicted(choice: Iterable[str], known: dict[str, Prior]) -> float:
    """Return the share of the step that these knobs are expected to save together."""
    left = 1.0
    for knob in choice:
        left *= 1 - known[knob].share if knob in known else 1.0
    return 1 - left
