"""Ablation of the best candidate, and its proof by the referee on fresh runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from fathom.referee import Settings, Verdict, prove_steps
from fathom.timing import CONFIDENCE, student
from fathom.tuner.effects import LEAST_ERROR, Effect
from fathom.tuner.pairing import Budget, Outcome, Paired, Trial, error_of
from fathom.tuner.results import FASTER
from fathom.tuner.running import Run
from fathom.tuner.search import Choice, Measured, Search
from fathom.tuner.sides import Separate, Switched

PATCH_RUNS = 2  # that find the places in the source, and run the patched copy
LEAST_PROOF = 12  # runs: six pairs
PROOF_RUNS = LEAST_PROOF + PATCH_RUNS
WORTH = 0.01  # share of the step time that a setting has to gain to be kept
CLEARLY = 2.0  # and standard errors of this gain
MOST_ROUNDS = 4
OVER = 0.08  # of the budget, by which a proof or a patch may exceed it
MOST_PROOF = 15  # pairs of a proof that its reserve allows
NOTED = 0.1  # share of the step time: where smaller gains cannot be proven, the user should know
LEAST_BENT = 3  # second differences: one disturbed run must not decide alone
Say = Callable[[str], None]


@dataclass(frozen=True)
class Gains:
    """Each setting's gain, as the logarithm of the time without it over that with it, and standard error.

    `effects` has what all candidates of the search say about the settings.
    """

    logs: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    effects: dict[str, Effect] = field(default_factory=dict)

    @property
    def combined(self) -> dict[str, float]:
        """The means of gains and effects, weighted by their standard errors."""
        return {knob: self._combined(knob)[0] for knob in self.logs}

    def pays(self, knob: str) -> bool:
        """Return whether a setting gains enough to be kept: of many that do nothing, some look useful."""
        if knob not in self.logs:
            return True
        log, error = self._combined(knob)
        return log >= max(-math.log(1 - WORTH), CLEARLY * error)

    def _combined(self, knob: str) -> tuple[float, float]:
        log, weight = self.logs[knob], max(self.errors[knob], LEAST_ERROR) ** -2
        if effect := self.effects.get(knob):
            more = effect.error**-2
            log, weight = (log * weight - effect.log * more) / (weight + more), weight + more
        return log, weight**-0.5


def trial_of(search: Search, choice: Choice) -> Trial:
    return Trial(
        search.setting(choice), search.work(choice), search.patience_s(choice), search.running(choice)
    )


def ablate(
    search: Search, paired: Paired, finalist: Measured, proof_s: float, budget: Budget, say: Say
) -> Gains:
    """Return the gain of each setting.

    Every setting is taken out of the choice in turn, beside runs of the whole choice, until the time left is
    that of the proof.
    """
    choice = finalist.choice
    if len(choice) < 2:
        return Gains()
    round_s = (len(choice) * 1.5 + 1) * max(finalist.last_s, paired.run_s)
    complete = trial_of(search, choice)
    beside = Paired(paired.runner, complete, paired.agree, paired.longest_s + complete.patience_s)
    beside.seconds, beside.rounded = paired.seconds, []  # only times are compared
    logs: dict[str, list[float]] = {knob: [] for knob in choice}
    for number in range(MOST_ROUNDS):
        if (budget.left_s if number else left_s(budget)) < round_s + proof_s:
            break
        say(f"taking settings out in turn, round {number + 1}")
        for knob, outcome in zip(choice, _without_each(search, beside, choice), strict=True):
            logs[knob] += [] if outcome.log is None else [outcome.log]
    error = error_of([*paired.runs, *beside.runs])
    known = {knob: seen for knob, seen in logs.items() if seen}
    errors = {knob: error / math.sqrt(len(seen)) for knob, seen in known.items()}
    every = search.effects(paired.error)
    effects = {knob: every[knob, value] for knob, value in choice.items() if (knob, value) in every}
    return Gains({knob: median(seen) for knob, seen in known.items()}, errors, effects)


def too_small(paired: Paired, total_s: float) -> str:
    """Return a note if the runs of the program scatter so much that even large gains cannot be proven."""
    runs = paired.runs
    bent = np.abs(np.diff(np.log([run.step_ns for run in runs]), 2))  # a drift bends little
    if len(bent) < LEAST_BENT:
        return ""
    scatter = math.sqrt(math.pi / 2 / 6) * float(np.mean(bent))  # median: too few runs
    afforded = int(total_s / 4 / np.mean([run.seconds for run in runs]))  # in half of the budget
    pairs = min(MOST_PROOF, max(PROOF_RUNS // 2, afforded))
    half = student((1 + CONFIDENCE) / 2, pairs - 1) * scatter * math.sqrt(2 / pairs)
    least = 1 - math.exp(-half)
    if least < NOTED:
        return ""
    longer = " or a longer --budget" if afforded < MOST_PROOF else ""
    of = " of settings that need separate runs" if paired.scatter else ""
    return (
        f"Runs of the program as it is differ by about {100 * scatter:.0f} %, so gains below"
        f" {100 * least:.0f} %{of} cannot be proven. Smaller gains need an idle machine{longer}."
    )


def _without_each(search: Search, beside: Paired, choice: Choice) -> list[Outcome]:
    rests = [{k: v for k, v in choice.items() if k != knob} for knob in choice]
    trials = [trial_of(search, rest) for rest in rests]
    pairs = [trials[first : first + 2] for first in range(0, len(trials), 2)]
    return [outcome for pair in pairs for outcome in beside.measure(pair)]


def kept(choice: Choice, gains: Gains) -> Choice:
    """Return the settings that gain something; the best one if none does for itself."""
    logs = gains.combined
    rest = {knob: value for knob, value in choice.items() if gains.pays(knob)}
    best = max(logs, key=lambda knob: logs[knob], default=None)
    return rest or ({best: choice[best]} if best else choice)


def prove(
    search: Search,
    paired: Paired,
    choice: Choice,
    budget: Budget,
    margin: float,
    say: Say,
    first: Run | None = None,
) -> Verdict:
    """Prove the choice against the program as it is, on fresh runs. Raises BadInputError.

    `first` is the first of these runs, of a choice that is proven whatever this run shows.
    """
    trial = trial_of(search, choice)
    proof = (Switched if paired.can_switch(trial) else Separate)(paired, trial, lambda: left_s(budget))
    proof.begun = [first] if first else []
    verdict = _proven(proof, choice, budget, margin, say)
    if proof.mixed:  # pairs of both kinds say nothing together
        notes, proof = proof.notes, Separate(paired, trial, lambda: left_s(budget))
        proof.notes = notes
        verdict = _proven(proof, choice, budget, margin, say)
    if verdict.verdict == FASTER:
        proof.close()
    verdict.notes += proof.notes
    return verdict


def left_s(budget: Budget) -> float:
    """Return the seconds left for a proof, which may exceed the budget a little."""
    return budget.left_s + OVER * budget.total_s


def _proven(proof: Separate, choice: Choice, budget: Budget, margin: float, say: Say) -> Verdict:
    paired = proof.paired
    spare_s = budget.left_s - PATCH_RUNS * paired.run_s
    settings = Settings(margin=margin, budget_s=max(0.0, spare_s), progress=say)
    names = "the program as it is", ", ".join(choice.values())
    allow = ("nothing-compared",) if paired.runner.steps.until is not None else ()
    return prove_steps(proof.run, names, settings, paired.agree, allow, budget.clock, paired.rounding)
