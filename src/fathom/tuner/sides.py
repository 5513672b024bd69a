"""The runs of both sides of a proof: separate processes, or processes that switch the settings."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fathom.referee import BASELINE, CANDIDATE, Metrics, SideError
from fathom.tuner.pairing import SLOWEST, Paired, Trial
from fathom.tuner.running import Run

RESULTS = 2  # runs of the candidate that do not switch, whose results are compared, at least
MOST_RESULTS = 6  # runs of each side that do not switch, at most
DIFFERENT = 3.0  # standard errors by which these runs may differ from those that switch
LEAST_DIFFERENCE = 0.03  # of the logarithm of the ratio
UNLIKE = (
    "Separate runs give the ratio {:.2f}, and settings switched within a run {:.2f}, so the proof is of"
    " separate runs."
)
WITHIN = "Times come from runs that switch the settings on and off, results from separate runs."
OVERTIME, LONGER = "the budget has no more time", "give a longer --budget"
FAILED = "Settings could not be switched within a run ({}), so the proof is of separate runs."
Samples = tuple[list[float], Metrics]  # ns per step, and results


class Separate:
    """Each block is a process under one side's settings.

    `begun` holds earlier runs of the candidate. No run of it may take more than `left_s`.
    """

    def __init__(self, paired: Paired, trial: Trial, left_s: Callable[[], float]) -> None:
        self.paired, self.trial, self.left_s = paired, trial, left_s
        self.begun: list[Run] = []
        self.notes: list[str] = []
        self.mixed = False  # pairs of both kinds say nothing together

    def close(self) -> None:
        """Note what the user should know about the proof."""

    def run(self, side: str) -> Samples:
        """Run a side once. Raises SideError."""
        done = self._done(side)
        return _samples(done), {} if done.reached_ns is not None else done.arrays

    def _done(self, side: str) -> Run:
        if side == BASELINE:
            done = self.paired.timed_run(self.paired.baseline, self.paired.longest_s)
        else:
            done = self.begun.pop() if self.begun else self.paired.timed_run(self.trial, self._patience_s())
        if done.status != "done":
            late = f"; {OVERTIME}" if self.left_s() <= 0 else ""
            code = "hangs" if done.status == "too slow" else "raises"
            raise SideError(code, (done.why or done.status) + late)
        return done

    def _patience_s(self, more_s: float = 0.0) -> float:
        return max(0.0, min(self.paired.longest_s + self.trial.patience_s + more_s, self.left_s()))


class Switched(Separate):
    """The blocks of a pair come from one process, which switches the candidate's settings on and off.

    Processes differ by more than most settings gain. Runs of each side that do not switch come first: their
    times have to be alike, or runs like them are the proof, and their results are compared. Those of earlier
    runs of the baseline are, too; the candidate's are fresh, because candidates that differed were left out.
    """

    def __init__(self, paired: Paired, trial: Trial, left_s: Callable[[], float]) -> None:
        super().__init__(paired, trial, left_s)
        self._alone: dict[str, list[Run]] = {BASELINE: [], CANDIDATE: []}
        self._results: dict[str, list[Metrics]] = {BASELINE: paired.results(), CANDIDATE: []}
        self._failed: dict[str, SideError] = {}  # by side, raised when it is asked for
        self._waiting: dict[str, Samples] = {}
        self._switches, self._pairs = True, 0

    def run(self, side: str) -> Samples:
        """Run both sides in one process, and return one of them; the other one is returned next."""
        if not any(self._alone.values()):
            self._run_alone(BASELINE, *[CANDIDATE] * RESULTS)
        if not self._waiting and self._switches:
            self._waiting = self._both()
        if side in self._failed:
            raise self._failed[side]
        return self._waiting.pop(side) if self._waiting else super().run(side)

    def close(self) -> None:
        """Note that the pairs are of runs that switched."""
        if self._switches and self._pairs:
            self.notes.append(WITHIN)

    def _run_alone(self, *sides: str) -> None:
        for side in sides:
            try:
                done = self._done(side)
            except SideError as error:
                self._fail(side, error)
                return
            self._alone[side].append(done)
            self._results[side].append(done.arrays)

    def _fail(self, side: str, error: SideError) -> None:
        self._failed[side], self._switches = error, False

    def _both(self) -> dict[str, Samples]:
        """Return both sides' blocks of one run; none if separate runs have to be the proof."""
        patience_s = self._patience_s(SLOWEST * self.paired.longer_s)
        without, under = self.paired.runner.switched(self.trial.switched, patience_s)
        self.paired.seconds.append(under.seconds)
        if under.status == "too slow" and self.left_s() <= 0:
            self._fail(CANDIDATE, SideError("no-time", LONGER))
            return {}
        why = self._why_not(without, under)
        if self._failed:
            return {}
        if why:
            self._switches, self.mixed = False, self._pairs > 0
            self.notes.append(why)
            return {}
        self._pairs += 1
        blocks = (BASELINE, without), (CANDIDATE, under)
        return {side: (run.samples, self._next_results(side)) for side, run in blocks}

    def _why_not(self, without: Run, under: Run) -> str:
        """Return why a run that switched the settings cannot be used; "" if it can."""
        if under.status != "done":
            return FAILED.format(under.why or under.status)
        within = _log([without], [under])
        while not self._failed and not self._is_alike(within):
            if len(self._alone[BASELINE]) >= MOST_RESULTS:
                return UNLIKE.format(math.exp(self._alone_log), math.exp(within))
            if self.left_s() < sum(runs[-1].seconds for runs in self._alone.values()):
                self._fail(CANDIDATE, SideError("no-time", LONGER))
                return ""
            self._run_alone(BASELINE, CANDIDATE)
        return ""

    @property
    def _alone_log(self) -> float:
        return _log(self._alone[BASELINE], self._alone[CANDIDATE])

    def _is_alike(self, within: float) -> bool:
        """Return whether separate runs are consistent with the switched ones."""
        every = self._alone.values()
        logs = [np.log([run.step_ns for run in runs]) for runs in every if len(runs) > 1]
        scatter = [float(np.std(each, ddof=1)) for each in logs]
        error = max(self.paired.error, *scatter) * math.sqrt(sum(1 / len(runs) for runs in every))
        return self._alone_log - within <= max(LEAST_DIFFERENCE, DIFFERENT * error)

    def _next_results(self, side: str) -> Metrics:
        """Return results of a run that did not switch, in turns."""
        results = self._results[side]
        results.append(results.pop(0))
        return results[-1]


def _log(without: list[Run], under: list[Run]) -> float:
    """Return the logarithm of the ratio of these runs."""
    a, b = (sum(math.log(run.step_ns) for run in runs) / len(runs) for runs in (without, under))
    return b - a


def _samples(run: Run) -> list[float]:
    """Return what the referee compares: times of steps, or the one time to a quality."""
    return run.samples if run.reached_ns is None else [run.reached_ns]
