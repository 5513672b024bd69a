"""The phases before the proof: candidates are measured, and the fastest of them ranked again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fathom.tuner.judging import PROOF_RUNS, trial_of
from fathom.tuner.lanes import Lanes
from fathom.tuner.options import Say
from fathom.tuner.pairing import BETWEEN, Budget, Outcome, Paired
from fathom.tuner.search import Choice, Measured, Search, key

ABLATION_RUNS, ABLATION_SHARE = 8, 0.15  # runs, and at most this share of the budget
FINAL_RUNS, FINAL_SHARE = 12, 0.15  # that rank the fastest candidates
CONTENDERS, FINAL_PAIRS = 3, 4  # candidates that are ranked again, and measurements of each
PROMISING = 0.02  # share of the step time from which a candidate is measured again
PAIRS = 3  # of a promising candidate


@dataclass(frozen=True)
class Exploration:
    """Measures candidates within the budget: `say` shows the progress, `keep` saves the time used."""

    search: Search
    paired: Paired
    lanes: Lanes
    budget: Budget
    say: Say
    keep: Callable[[], None]

    def _reserved_s(self) -> float:
        """Return the time kept for proof and ablation; a short budget leaves less for the ablation."""
        ranked = self.search.ranked()
        proof_s = self.proof_s(ranked[0] if ranked else Measured({}))
        return proof_s + self._share_s(ABLATION_RUNS, ABLATION_SHARE) + self._share_s(FINAL_RUNS, FINAL_SHARE)

    def _share_s(self, runs: int, share: float) -> float:
        return min(runs * self.paired.base_s, share * self.budget.total_s)

    def proof_s(self, candidate: Measured) -> float:
        """Return the time of a proof: candidates that lost may take longer, or compile."""
        return PROOF_RUNS * (self.paired.base_s + max(self.paired.base_s, candidate.seconds)) / 2

    def explore(self) -> None:
        """Measure candidates until the time left is that of ablation and proof."""
        combined = False
        while self.budget.left_s > self._reserved_s() + (BETWEEN + 1) * self.paired.run_s:
            if not combined and (not self.search.untried() or self._half_spent()):
                self.search.combine()
                combined = True
            batch = [self.search.ask() for _ in range(self.lanes.width)]
            if all(self._is_known(choice) for _, choice in batch):
                break
            self._measure(batch)

    def rank_again(self) -> None:
        """Measure the fastest candidates again: the fastest of many measured once may owe it to chance."""
        until_s = self.budget.left_s - self._share_s(FINAL_RUNS, FINAL_SHARE)
        while again := self.search.contenders(CONTENDERS, FINAL_PAIRS):
            if self.budget.left_s - (len(again) + 1) * self.paired.base_s < until_s:
                break
            self.say(f"{self._best()}measuring the fastest again")
            trials = [trial_of(self.search, known.choice) for known in again]
            for known, outcome in zip(again, self.paired.measure(trials, self.keep), strict=True):
                self.search.add(_measured(known.choice, outcome))

    def _half_spent(self) -> bool:
        return self.budget.used_s > (self.budget.total_s - self._reserved_s()) * 0.7

    def _is_known(self, choice: Choice) -> bool:
        known = self.search.measured.get(key(choice))
        return not choice or (known is not None and len(known.logs) >= PAIRS)

    def _measure(self, batch: list[tuple[object, Choice]]) -> None:
        names = " and ".join(", ".join(choice.values()) or "as it is" for _, choice in batch)
        self.say(f"{self._best()}{len(self.search.measured)} tried · now {names}")
        outcomes = self.lanes.measure([trial_of(self.search, choice) for _, choice in batch], self.keep)
        results = [_measured(choice, outcome) for (_, choice), outcome in zip(batch, outcomes, strict=True)]
        again = [result for result in results if (result.gain or 0) > PROMISING and result.status == "done"]
        if again:  # a second look at candidates that look faster, before the sampler believes it
            trials = [trial_of(self.search, result.choice) for result in again]
            for result, outcome in zip(again, self.lanes.measure(trials, self.keep), strict=True):
                _add(result, outcome)
        for (trial, choice), result in zip(batch, results, strict=True):
            self.search.tell(trial, choice, result)

    def _best(self) -> str:
        ranked = self.search.ranked()
        return f"best {100 * (ranked[0].gain or 0):.0f} % faster · " if ranked else ""


def _measured(choice: Choice, outcome: Outcome) -> Measured:
    result = Measured(choice)
    _add(result, outcome)
    return result


def _add(result: Measured, outcome: Outcome) -> None:
    result.logs += [] if outcome.log is None else [outcome.log]
    result.seconds = max(result.seconds, outcome.run.seconds)
    if outcome.log is None:
        result.status, result.why = outcome.run.status, outcome.run.why
    elif outcome.differs:
        result.status, result.why = "differs", outcome.differs
