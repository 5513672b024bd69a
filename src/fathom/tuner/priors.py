"""The gain that each knob is expected to bring, from the findings and the account of the recorded program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from fathom.analysis.results import Examination
from fathom.tuner.facts import Facts
from fathom.tuner.knobs import Knob, Value

MOST, LEAST = 0.95, 1e-4  # of the step; a value that loses time by its prediction comes last
GRAPHS = "reduce-overhead"  # mode of torch.compile that captures CUDA graphs without autotuning
CAPTURING = ("framework-not-compiled", "host-launch-bound")  # findings that know what CUDA graphs gain
LATER = 0.3  # factor of each further value of a knob: it gains only what the values before it leave


@dataclass(frozen=True)
class Prior:
    """The share of the step that a knob is predicted to save, and its source: findings, account or unknown.

    `values` has the shares of values that are predicted for themselves. Where no share is known, `guess`
    decides when the knob is tried. `idle` has the shares of values on a host that runs nothing else.
    """

    share: float | None
    source: str
    because: tuple[str, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    guess: float = 0.0
    idle: Mapping[str, float] = field(default_factory=dict)

    def of(self, value: str) -> float | None:
        """Return the share that this value is predicted to save; None if nothing predicts it."""
        return self.values.get(value, self.share)

    def hope(self, value: str) -> float:
        """Return the share that decides when this value is tried: other programs may end meanwhile."""
        known = self.of(value)
        return max(self.guess if known is None else known, self.idle.get(value, 0.0))


@dataclass(frozen=True)
class _Gain:
    """The gain of a finding alone as a share of the step, and its remedy; `graphed`: with CUDA graphs."""

    kind: str
    action: str
    share: float
    graphed: float = 0.0


def priors(knobs: Iterable[Knob], examination: Examination, facts: Facts) -> dict[str, Prior]:
    """Return the prior of each knob by id: the gain of this remedy itself, and not that of other remedies."""
    gains = list(_gains(examination))
    return {knob.id: _prior(knob, gains, facts) for knob in knobs}


def _gains(examination: Examination) -> Iterator[_Gain]:
    step_ms = examination.step.basis_ms
    for finding in examination.findings if step_ms else ():
        if finding.gain_ms and step_ms:
            share = min(MOST, (finding.alone_ms or finding.gain_ms) / step_ms)
            graphed = min(MOST, (finding.with_graphs_ms or 0.0) / step_ms)
            yield _Gain(finding.id, finding.action, share, graphed)


def _suggesting(row: Knob | Value, knob: Knob, gains: Iterable[_Gain]) -> list[_Gain]:
    """Return the gains of the findings whose remedy this knob or value is."""
    mine = (gain for gain in gains if gain.kind in row.suggested_by)
    return [gain for gain in mine if knob.actions.get(gain.kind, gain.action) == gain.action]


def _prior(knob: Knob, gains: list[_Gain], facts: Facts) -> Prior:
    prior = _of_knob(knob, gains, facts)
    values = {v.name: share for v in knob.values if (share := _of_value(v, knob, gains, facts, prior))}
    because = (gain.kind for value in knob.values for gain in _suggesting(value, knob, gains))
    kinds = tuple(dict.fromkeys((*prior.because, *because)))
    source = "findings" if kinds else "account" if values else prior.source
    alone = {v.name: facts.by_workers_alone.get(_workers(v), 0.0) for v in knob.values}
    return replace(prior, source=source, because=kinds, values=values, idle=alone)


def _workers(value: Value) -> int:
    """Return the number of a loader's workers under this value; -1 if it leaves them as they are."""
    return int((value.acts.get("loader") or {}).get("num_workers", -1))


def _of_value(value: Value, knob: Knob, gains: list[_Gain], facts: Facts, prior: Prior) -> float | None:
    """Return the share that this value is predicted to save for itself; None for that of its knob."""
    own = max((gain.share for gain in _suggesting(value, knob, gains)), default=None)
    if (value.acts.get("compile") or {}).get("mode") == GRAPHS:
        graphed = (gain.graphed for gain in gains if gain.kind in CAPTURING and gain.graphed)
        own = max((*graphed, *([] if own is None else [own])), default=None)
    if (workers := _workers(value)) in facts.by_workers:
        return max(own or LEAST, min(MOST, facts.by_workers[workers]))
    return None if own is None else max(own, prior.share or 0.0)


def _of_knob(knob: Knob, gains: list[_Gain], facts: Facts) -> Prior:
    mine = _suggesting(knob, knob, gains)
    if mine:
        return Prior(max(gain.share for gain in mine), "findings", tuple(gain.kind for gain in mine))
    share = min(1.0, sum(facts.shares.get(category, 0.0) for category in knob.acts_on))
    guess = knob.saves * share if knob.acts_on else knob.saves
    # On a GPU, rules look for work that a knob would shorten: without a finding, its share says nothing.
    if share and "cuda" not in facts.words:
        return Prior(guess, "account")
    return Prior(None, "unknown", guess=guess)


def in_order(knobs: Iterable[Knob], known: dict[str, Prior]) -> list[tuple[Knob, Value]]:
    """Return every value of every knob, the most promising first."""
    rows = []
    for knob in knobs:
        values = sorted(knob.values, key=lambda value: -known[knob.id].hope(value.name))
        for place, value in enumerate(values):
            rows.append((known[knob.id].hope(value.name) * LATER**place, knob, value))
    return [(knob, value) for _, knob, value in sorted(rows, key=lambda row: -row[0])]


def predicted(choice: Mapping[str, str], known: Mapping[str, Prior]) -> float | None:
    """Return the share of the step that these values of knobs save together; None if nothing predicts it."""
    shares = [known[knob].of(value) for knob, value in choice.items() if knob in known]
    left = [1 - share for share in shares if share is not None]
    return 1 - math.prod(left) if left else None
