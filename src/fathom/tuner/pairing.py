"""Candidates interleaved with the baseline, so that a drift of the machine favours neither.

Runs follow the order A c c A c c A: every candidate is compared with the baseline runs before and after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fathom.errors import BadInputError
from fathom.recorder import Applied
from fathom.referee import Metrics, differences
from fathom.timing import Clock, SystemClock
from fathom.tuner.running import Run, Runner, merged

BETWEEN = 2  # candidates between two runs of the baseline
SLOWER = 1.6  # a candidate's run may take this much longer than the baseline's; else it has lost
LEAST_PATIENCE_S = 5.0
COMPARED = 8  # latest runs of the baseline, with which results are compared
RECENT = 4  # runs from which the duration of the next one is expected
DISTURBED = 0.1  # difference of the logarithms of two runs of the baseline from which the slower is left out
ROUNDED = 4  # runs of the baseline that round at random; two give an uncertain scatter


@dataclass
class Budget:
    """The time of a search, of which an earlier part may have spent some."""

    total_s: float
    spent_s: float = 0.0
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self._began = self.clock.now_ns()

    @property
    def used_s(self) -> float:
        """The seconds used so far."""
        return self.spent_s + (self.clock.now_ns() - self._began) / 1e9

    @property
    def left_s(self) -> float:
        return self.total_s - self.used_s


@dataclass(frozen=True)
class Trial:
    """A candidate to run: its settings, the work of its steps, and the extra time that it may take."""

    setting: Applied
    work: float = 1.0
    patience_s: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """A candidate's run, and the logarithm of its time over the baseline's, if it has one."""

    run: Run
    log: float | None
    differs: str = ""


class Paired:
    """Runs candidates beside `baseline`, whose last run serves the next candidates too."""

    def __init__(self, runner: Runner, baseline: Trial, agree: float | None, longest_s: float) -> None:
        self.runner, self.baseline, self.agree = runner, baseline, agree
        self.longest_s = longest_s  # of a run of the baseline
        self.runs: list[Run] = []
        self.seconds: list[float] = []  # of all runs, candidates included
        self.rounded: list[Metrics] | None = None  # results of the baseline rounded at random, once needed
        self._last: Run | None = None

    @property
    def run_s(self) -> float:
        """The expected seconds of a run."""
        return float(np.mean(self.seconds[-RECENT:])) if self.seconds else self.longest_s

    @property
    def base_s(self) -> float:
        """The expected seconds of a run of the baseline."""
        return float(np.mean([run.seconds for run in self.runs[-RECENT:]])) if self.runs else self.longest_s

    @property
    def rounding_s(self) -> float:
        """The expected seconds of the runs that round at random; the first result that differs needs them."""
        return ROUNDED * self.base_s if self.rounded is None and self._has_losses() else 0.0

    def measure(self, trials: Sequence[Trial], seen: Callable[[], None] = lambda: None) -> list[Outcome]:
        """Run the trials between two runs of the baseline."""
        runs, level = self.timed(trials, seen)
        return [self.outcome(run, level) for run in runs]

    def timed(
        self, trials: Sequence[Trial], seen: Callable[[], None] = lambda: None
    ) -> tuple[list[Run], float]:
        """Run the trials between two runs of the baseline; return the logarithm of its step time, too."""
        before = self._last or self._base()
        ran = []
        for trial in trials:
            ran.append(self._tried(trial))
            seen()
        after = self._last = self._base()
        level = _level(math.log(before.step_ns), math.log(after.step_ns))
        return ran, level

    def _base(self) -> Run:
        run = self._run(self.baseline, self.longest_s)
        if run.status != "done":  # other load may have hit it, which must not end a long search
            run = self._run(self.baseline, 2 * self.longest_s)
        if run.status != "done":
            raise BadInputError(
                f"The search stopped, because the program as it is failed twice: {run.why or run.status}."
                " Repeat the command, on an idle machine, to continue."
            )
        self.runs.append(run)
        return run

    def _tried(self, trial: Trial) -> Run:
        usual = max((run.seconds for run in self.runs), default=self.longest_s)
        return self._run(trial, max(LEAST_PATIENCE_S, SLOWER * usual) + trial.patience_s)

    def _run(self, trial: Trial, patience_s: float) -> Run:
        run = self.runner.run(trial.setting, patience_s, trial.work)
        self.seconds.append(run.seconds)
        return run

    def outcome(self, run: Run, level: float) -> Outcome:
        """Compare a run with the baseline, whose step time has the logarithm `level`."""
        if run.status != "done":
            return Outcome(run, None)
        log = math.log(run.step_ns) - level
        return Outcome(run, log, self.differs(run.arrays, log))

    def differs(self, arrays: Metrics, log: float) -> str:
        """Return how these results differ from the baseline's; empty if they agree or only time counts.

        `log` is negative for a run that gained something. Others are not judged: that takes the scatter by
        rounding, which costs runs.
        """
        if self.runner.steps.until is not None or log >= 0:
            return ""
        known = [run.arrays for run in self.runs[-COMPARED:]]
        reasons, _ = differences(known, [arrays], self.agree, self.rounding)
        return "; ".join(reason.detail or reason.code for reason in reasons)

    def rounding(self) -> list[Metrics]:
        """Return losses and weights of the baseline rounded at random, which are measured once.

        A difference within the program's own rounding does not count as a different result. Outputs are not
        rounded: tokens that flip by chance would permit any others.
        """
        if self.rounded is None:
            runs = [self._rounded(n) for n in range(ROUNDED)] if self._has_losses() else []
            self.rounded = [run.arrays for run in runs if run.status == "done"]
        return self.rounded

    def _has_losses(self) -> bool:
        return any("loss" in run.arrays for run in self.runs)

    def _rounded(self, seed: int) -> Run:
        setting = merged([self.baseline.setting, Applied(acts={"rounding": seed})])
        return self._run(Trial(setting), self.longest_s)


def _level(before: float, after: float) -> float:
    """Return the baseline's logarithm between two of its runs.

    Something else that runs meanwhile can only slow a run down. A baseline that it hit would make every
    candidate beside it look fast.
    """
    return min(before, after) if abs(before - after) > DISTURBED else (before + after) / 2
