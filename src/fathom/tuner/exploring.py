"""The phases before the proof: candidates are measured, and the fastest of them ranked again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fathom.tuner.judging import LEAST_PROOF, OVER, PROOF_RUNS, too_small, trial_of
from fathom.tuner.lanes import Lanes
from fathom.tuner.options import Say
from fathom.tuner.pairing import BETWEEN, SLOWER, Budget, Outcome, Paired, Trial
from fathom.tuner.results import label_of
from fathom.tuner.running import Run
from fathom.tuner.search import PAIRS, PAYS, Choice, Measured, Search, key
from fathom.tuner.sides import RESULTS

ABLATION_RUNS, ABLATION_SHARE = 8, 0.15  # runs, and at most this share of the budget
FINAL_SHARE = 0.25  # of the budget, at most, to rank the fastest candidates
CONTENDERS = 3  # candidates that are ranked again
FEWEST, MOST = 4, 8  # measurements of each, more where runs scatter
KNOWN = 0.015  # standard error of a ratio's logarithm at which a candidate is not measured again
PROMISING = 0.02  # share of the step time from which a candidate is measured again
COMPILED = 0.25  # share of the extra time of a first run that later ones take: kernels are on disk
COMPILES_S = 30.0  # extra seconds of a first run: half of six programs compiled in 28 s beside an H200
QUICKEST_S = 15.0  # extra seconds without which a form that compiles is not tried: it would be ended
LARGE = 0.2  # predicted share of the step from which a setting may be proven without a measurement
ENDED = "ended after {:.0f} s with compiling; give a longer --budget"
MORE_PROOF, FAR = 8, 3.0  # pairs of a proof, and standard errors that its gain has to exceed


@dataclass
class Exploration:
    """Measures candidates within the budget: `say` shows the progress, `keep` saves the time used, `tell`
    prints a line that stays.
    """

    search: Search
    paired: Paired
    lanes: Lanes
    budget: Budget
    say: Say
    keep: Callable[[], None]
    tell: Say
    warned: bool = False  # that small gains cannot be proven

    def run(self) -> Choice:
        """Measure candidates and rank the fastest again; if none is left, measure others.

        Return the settings that pay by all measurements; the last rounds measured them, too. It ends early
        for a setting that `hope` returns.
        """
        self.explore(self._rest_s)
        if self._ends_for_hope():
            return {}
        proposal = self.rank_again()
        if self.best_gain < PAYS:
            self.explore(lambda: 0.0)
            proposal = self.rank_again()
        return proposal

    @property
    def best_gain(self) -> float:
        """The largest gain that was measured; 0 without one."""
        return max((known.gain or 0.0 for known in self.search.ranked()), default=0.0)

    def hope(self, measured: float) -> Choice:
        """Return a setting that should be proven without a measurement before, in the time left; or none.

        Its predicted gain is large, and larger than what was `measured`.
        """
        choice = self.search.hope(max(LARGE, measured))
        least_s = QUICKEST_S if self.search.patience_s(choice) else 0.0
        return choice if self._proving_s() >= least_s else {}

    def begin(self, choice: Choice) -> tuple[Measured, Run]:
        """Return the first run of the setting of `hope`, no longer than its proof allows, and its result."""
        outcome = self.paired.alone(self._trial(choice, self._proving_s()))
        return self._explained(_measured(choice, outcome)), outcome.run

    def _ends_for_hope(self) -> bool:
        """Return whether the best hope compiles and has no time to be measured before its proof."""
        compiles = self.search.patience_s(self.hope(self.best_gain)) > 0
        return compiles and self._measurable_s() < COMPILES_S

    def _reserved_s(self, rest_s: Callable[[], float]) -> float:
        """Return the time kept for the proof, and for what follows the search beside it."""
        ranked = self.search.ranked()
        proof_s = self.proof_s(ranked[0] if ranked else Measured({}))
        return proof_s + min(rest_s(), max(0.0, self.budget.total_s - proof_s) / 2)

    def _rest_s(self) -> float:
        """Return the time of the ablation and the last ranking; a short budget leaves less."""
        return self._share_s(ABLATION_RUNS, ABLATION_SHARE) + self._final_s()

    def _pairs(self) -> int:
        """Return how often the fastest candidates are measured."""
        return min(MOST, max(FEWEST, round((self.paired.error / KNOWN) ** 2)))

    def _final_s(self) -> float:
        """Return the time to rank the fastest candidates again."""
        runs = CONTENDERS * (self._pairs() - 1) * (1 + 1 / BETWEEN)
        return self._share_s(runs, FINAL_SHARE)

    def _share_s(self, runs: float, share: float) -> float:
        return min(runs * self.paired.base_s, share * self.budget.total_s)

    def proof_s(self, candidate: Measured) -> float:
        """Return the time of a proof: candidates that lost may take longer, or compile.

        Where runs scatter, the interval of a small gain needs more pairs, unless it is switched within runs.
        """
        if not candidate.logs:
            return LEAST_PROOF * self.paired.base_s
        again_s = self._again_s(candidate)
        if candidate.within:
            pairs_s = PROOF_RUNS / 2 * (again_s + self.paired.longer_s)
            return self.paired.base_s + RESULTS * again_s + pairs_s
        error, gain = self.paired.error, candidate.gain or 0.0
        more = min(MORE_PROOF, round((FAR * error / max(gain, PROMISING)) ** 2))
        if gain < error / math.sqrt(len(candidate.logs)):  # chance may explain it: others are worth the time
            more = 0
        return (PROOF_RUNS / 2 + more) * (self.paired.base_s + again_s)

    def least_proof_s(self, candidate: Measured) -> float:
        """Return the time of the shortest proof, which suffices where its pairs agree."""
        if candidate.within or not candidate.logs:
            return self.proof_s(candidate)
        return LEAST_PROOF / 2 * (self.paired.base_s + self._again_s(candidate))

    def _again_s(self, candidate: Measured) -> float:
        """Return the seconds that a candidate's next run takes: only its first one compiles all kernels."""
        base_s = self.paired.base_s
        more_s = max(0.0, candidate.last_s - base_s)
        first = len(candidate.logs) < 2 and self.search.patience_s(candidate.choice)
        return base_s + (COMPILED * more_s if first else more_s)

    def explore(self, rest_s: Callable[[], float]) -> None:
        """Measure candidates until the time left is that of the proof and the rest."""
        combined = False
        while self.budget.left_s > self._reserved_s(rest_s) + (BETWEEN + 1) * self.paired.base_s:
            if self._ends_for_hope():
                break
            if not combined and (not self.search.untried() or self._half_spent(rest_s)):
                self.search.combine(self.paired.error)
                combined = True
            batch = self._asked()
            if all(self._is_known(choice) for _, choice in batch):
                break
            self._measure(batch)
            self._warn()

    def _warn(self) -> None:
        """Say once, early, that runs scatter too much for small gains."""
        note = "" if self.warned else too_small(self.paired, self.budget.total_s)
        if note:
            self.tell(note)
            self.warned = True

    def rank_again(self) -> Choice:
        """Measure the fastest candidates again: the fastest of many measured once may owe it to chance.

        Return the settings that pay by all measurements, which are measured with them.
        """
        least_s = self.budget.left_s - self._final_s()
        proposal = self.search.proposed(self.paired.error)
        while again := self.search.contenders(proposal, CONTENDERS, self._pairs()):
            proof_s = max((self.proof_s(known) for known in again if known.logs), default=0.0)
            if self.budget.left_s - self._measuring_s(again) < max(least_s, proof_s):
                break
            self.say(f"{self._best()}measuring the fastest again")
            trials = [trial_of(self.search, known.choice) for known in again]
            for known, outcome in zip(again, self.paired.measure(trials, self.keep), strict=True):
                self.search.add(_measured(known.choice, outcome))
        return proposal

    def _half_spent(self, rest_s: Callable[[], float]) -> bool:
        return self.budget.used_s > (self.budget.total_s - self._reserved_s(rest_s)) * 0.7

    def _is_known(self, choice: Choice) -> bool:
        known = self.search.measured.get(key(choice))
        return not choice or (known is not None and len(known.logs) >= PAIRS)

    def _measure(self, batch: list[tuple[object, Choice]]) -> None:
        names = " and ".join(label_of(choice) for _, choice in batch)
        self.say(f"{self._best()}{len(self.search.measured)} tried · now {names}")
        outcomes = self.lanes.measure(self._trials([choice for _, choice in batch]), self.keep)
        results = [_measured(choice, outcome) for (_, choice), outcome in zip(batch, outcomes, strict=True)]
        again = [result for result in results if self._worth_a_second_look(result)]
        if again:  # before the sampler believes it
            trials = self._trials([result.choice for result in again])
            for result, outcome in zip(again, self.lanes.measure(trials, self.keep), strict=True):
                _add(result, outcome)
        for (trial, choice), result in zip(batch, results, strict=True):
            self.search.tell(trial, choice, self._explained(result))

    def _explained(self, result: Measured) -> Measured:
        """Return a result with the budget as the reason if it ended a run that compiled."""
        patience_s = self.search.patience_s(result.choice)
        is_cut = result.last_s < SLOWER * self.paired.base_s + patience_s
        if result.status == "too slow" and patience_s and is_cut:
            result.why = ENDED.format(result.last_s)
        return result

    def _worth_a_second_look(self, result: Measured) -> bool:
        """Return whether a candidate looks faster, and may be the fastest with these knobs."""
        promising = result.status == "done" and (result.gain or 0.0) > PROMISING
        if self.budget.left_s < self.proof_s(result) + self._measuring_s([result]):
            return False  # the proof comes first
        return promising and self.search.may_lead(result, self.paired.error)

    def _measuring_s(self, candidates: Sequence[Measured]) -> float:
        """Return the time to measure candidates once, with the run of the baseline that follows them."""
        return self.paired.base_s + sum(map(self._again_s, candidates))

    def _asked(self) -> list[tuple[object, Choice]]:
        """Return the next candidates; one that compiles comes alone: the next may take what it left."""
        first = self._next()
        alone = self.lanes.width == BETWEEN and self.search.patience_s(first[1])
        return [first, *(self._next() for _ in range(0 if alone else self.lanes.width - 1))]

    def _next(self) -> tuple[object, Choice]:
        """Return the next candidate; those that have no time to compile are left for a longer budget."""
        while True:
            trial, choice = self.search.ask()
            if not self.search.patience_s(choice) or self._measurable_s() >= QUICKEST_S:
                return trial, choice

    def _trials(self, choices: Sequence[Choice]) -> list[Trial]:
        """Return the candidates; those that compile end when the proof would no longer fit."""
        more_s = self._measurable_s(max(1, sum(map(bool, map(self.search.patience_s, choices)))))
        return [self._trial(choice, more_s) for choice in choices]

    def _trial(self, choice: Choice, more_s: float) -> Trial:
        """Return a candidate whose run may take `more_s` longer than the baseline's."""
        trial, longest_s = trial_of(self.search, choice), more_s - (SLOWER - 1) * self.paired.base_s
        return replace(trial, patience_s=max(0.0, min(trial.patience_s, longest_s)))

    def _measurable_s(self, compiling: int = 1) -> float:
        """Return the extra seconds of so many candidates that compile, if one of them is then proven."""
        return self._extra_s(PROOF_RUNS + 1, compiling, PROOF_RUNS // 2)

    def _proving_s(self) -> float:
        """Return the extra seconds of a candidate's first run that is already part of its proof."""
        return self._extra_s(LEAST_PROOF, 1, LEAST_PROOF // 2 - 1, OVER)

    def _extra_s(self, runs: int, first: int, later: int, over: float = 0.0) -> float:
        """Return the extra seconds of each of `first` runs, if `runs` of the program have to fit too.

        `later` runs of one candidate find kernels on disk. They may exceed the budget by a share of `over`.
        Where a run was ended while it compiled, the next ones are not expected to start faster a second time.
        """
        slow = [known for known in self.search.measured.values() if known.status == "too slow"]
        ended = any(self.search.patience_s(known.choice) for known in slow)
        left_s = self.budget.left_s + over * self.budget.total_s
        left_s -= self.paired.rounding_s + runs * self.paired.base_s
        return left_s / (first + later * (1.0 if ended else COMPILED))

    def _best(self) -> str:
        ranked = self.search.ranked()
        return f"best so far {100 * (ranked[0].gain or 0):.0f} % shorter · " if ranked else ""


def _measured(choice: Choice, outcome: Outcome) -> Measured:
    result = Measured(choice)
    _add(result, outcome)
    return result


def _add(result: Measured, outcome: Outcome) -> None:
    result.logs += outcome.logs
    result.within = len(outcome.logs) > 1 and (result.within or len(result.logs) == len(outcome.logs))
    result.seconds, result.last_s = max(result.seconds, outcome.run.seconds), outcome.run.seconds
    if not outcome.logs:
        result.status, result.why = outcome.run.status, outcome.run.why
    elif outcome.differs:
        result.status, result.why = "differs", outcome.differs
