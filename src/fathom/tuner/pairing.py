"""Candidates interleaved with the baseline, so that a drift of the machine favours neither.

A candidate that can be switched on and off while the program runs is compared with the program as it is
within one run. The others follow the order A c c A c c A: each is compared with the baseline runs before and
after it.
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
SLOWEST = 3.0  # times the usual time of its additional steps that a run which switches may take
LEAST_PATIENCE_S = 5.0
COMPARED = 8  # latest runs of the baseline, with which results are compared
RECENT = 4  # runs from which the duration of the next one is expected
DISTURBED = 0.1  # difference of the logarithms of two runs of the baseline from which the slower is left out
FEWEST = 2  # runs of the baseline, whose results scatter
FEW = 3  # runs of the baseline, whose scatter is not known
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
    """A candidate to run: its settings, the work of its steps, and the extra time that it may take.

    `running` has the settings for a program that already runs, if they differ.
    """

    setting: Applied
    work: float = 1.0
    patience_s: float = 0.0
    running: Applied | None = None

    @property
    def switched(self) -> Applied:
        """The settings to switch on and off within a run."""
        return self.running or self.setting


@dataclass(frozen=True)
class Timed:
    """A candidate's run, and logarithms of its time over the baseline's: one, or one a group of blocks."""

    trial: Trial
    run: Run
    logs: list[float]


@dataclass(frozen=True)
class Outcome:
    """A candidate's run with these logarithms, and how its results differ."""

    run: Run
    logs: list[float]
    differs: str = ""

    @property
    def log(self) -> float | None:
        """The mean logarithm; None if the run failed."""
        return float(np.mean(self.logs)) if self.logs else None


class Paired:
    """Runs candidates beside `baseline`, whose last run serves the next candidates too."""

    def __init__(self, runner: Runner, baseline: Trial, agree: float | None, longest_s: float) -> None:
        self.runner, self.baseline, self.agree = runner, baseline, agree
        self.longest_s = longest_s  # of a run of the baseline
        self.runs: list[Run] = []
        self.seconds: list[float] = []  # of all runs, candidates included
        self.rounded: list[Metrics] | None = None  # results of the baseline rounded at random, once needed
        self.scatter: list[float] = []  # of the logarithms within each run that switched
        self._judged: dict[str, Run] = {}  # runs by setting, whose results were compared
        self._alone: set[str] = set()  # settings that cannot be switched after all
        self._last: Run | None = None

    def start(self, first: Run) -> None:
        """Take this run of the baseline as the one before the first candidates."""
        self._last, self.runs, self.seconds = first, [first], [first.seconds]

    @property
    def run_s(self) -> float:
        """The expected seconds of a run."""
        return float(np.mean(self.seconds[-RECENT:])) if self.seconds else self.longest_s

    @property
    def base_s(self) -> float:
        """The expected seconds of a run of the baseline."""
        return float(np.mean([run.seconds for run in self.runs[-RECENT:]])) if self.runs else self.longest_s

    @property
    def error(self) -> float:
        """The standard error of one ratio of processes; of blocks within a process where too few have run."""
        few = len(self.runs) < FEW and self.scatter
        return float(np.median(self.scatter)) if few else error_of(self.runs)

    @property
    def rounding_s(self) -> float:
        """The expected seconds of the runs that round at random; the first result that differs needs them."""
        return ROUNDED * self.base_s if self.rounded is None and self._has_losses() else 0.0

    def measure(self, trials: Sequence[Trial], seen: Callable[[], None] = lambda: None) -> list[Outcome]:
        """Run the trials, and compare their times and results with the baseline's."""
        return [self.outcome(timed) for timed in self.timed(trials, seen)]

    def can_switch(self, trial: Trial) -> bool:
        """Return whether a trial is compared with the program as it is within one run."""
        comparable = (
            self.baseline.setting == Applied() and trial.work == 1.0 and self.runner.steps.until is None
        )
        return (
            comparable and repr(trial.setting) not in self._alone and self.runner.can_switch(trial.switched)
        )

    def timed(self, trials: Sequence[Trial], seen: Callable[[], None] = lambda: None) -> list[Timed]:
        """Run the trials, those that need separate processes between two runs of the baseline."""
        ran = {n: self.switched(trial) for n, trial in enumerate(trials) if self.can_switch(trial)}
        seen()
        alone = [n for n, trial in enumerate(trials) if n not in ran or not self.can_switch(trial)]
        if alone:
            ran |= zip(alone, self._between([trials[n] for n in alone], seen), strict=True)
        return [ran[n] for n in range(len(trials))]

    def _between(self, trials: Sequence[Trial], seen: Callable[[], None]) -> list[Timed]:
        """Run the trials between two runs of the baseline."""
        before = self._last or self._base()
        runs = []
        for trial in trials:
            runs.append(self._tried(trial))
            seen()
        measured = any(run.status == "done" for run in runs)
        after = self._last = self._base() if measured else before
        level = _level(math.log(before.step_ns), math.log(after.step_ns))
        return [
            Timed(trial, run, [math.log(run.step_ns) - level] if run.status == "done" else [])
            for trial, run in zip(trials, runs, strict=True)
        ]

    def switched(self, trial: Trial) -> Timed:
        """Run the program once, switching the trial's settings on and off.

        Where that fails, the trial gets separate processes from now on.
        """
        patience_s = self._patience_s(trial) + SLOWEST * self.longer_s
        without, under = self.runner.switched(trial.switched, patience_s)
        self.seconds.append(under.seconds)
        if under.status not in ("done", "too slow"):
            self._alone.add(repr(trial.setting))
        if under.status == "no steps":  # the program ends before the last block, under any setting
            self.runner.switches = None
        logs = of_groups(without.samples, under.samples) if under.status == "done" else []
        self.scatter += [float(np.std(logs, ddof=1))] if len(logs) > 1 else []
        return Timed(trial, under, logs)

    def alone(self, trial: Trial) -> Outcome:
        """Run a trial, and compare its time with that of the last run of the baseline."""
        before, run = self._last or self._base(), self._tried(trial)
        return Outcome(run, [math.log(run.step_ns / before.step_ns)] if run.status == "done" else [])

    def _base(self) -> Run:
        run = self.timed_run(self.baseline, self.longest_s)
        if run.status != "done":  # other load may have hit it, which must not end a long search
            run = self.timed_run(self.baseline, 2 * self.longest_s)
        if run.status != "done":
            raise BadInputError(
                f"The search stopped, because the program as it is failed twice: {run.why or run.status}."
                " Repeat the command, on an idle machine, to continue."
            )
        self.runs.append(run)
        return run

    def _tried(self, trial: Trial) -> Run:
        return self.timed_run(trial, self._patience_s(trial))

    @property
    def longer_s(self) -> float:
        """The time by which a run that switches is longer, because it has more steps."""
        steps, switches = self.runner.steps, self.runner.switches
        more = switches.steps - steps.warm - steps.counted if switches else 0
        return max(0, more) * self.runs[-1].step_ns / 1e9 if self.runs else 0.0

    def _patience_s(self, trial: Trial) -> float:
        usual = max((run.seconds for run in self.runs), default=self.longest_s)
        return max(LEAST_PATIENCE_S, SLOWER * usual) + trial.patience_s

    def timed_run(self, trial: Trial, patience_s: float) -> Run:
        """Run a trial for at most `patience_s`."""
        run = self.runner.run(trial.setting, patience_s, trial.work)
        self.seconds.append(run.seconds)
        return run

    def outcome(self, timed: Timed) -> Outcome:
        """Compare the results of a candidate with the baseline's.

        A run that switched has the results of both, so one that gained is repeated once without switching.
        """
        run, log = timed.run, float(np.mean(timed.logs)) if timed.logs else 0.0
        if len(timed.logs) > 1 and log < 0:  # it switched
            if len(self.runs) < FEWEST:  # one run has no scatter, by which results may differ
                self._last = self._base()
            key = repr(timed.trial.setting)
            run = self._judged[key] = self._judged.get(key) or self._tried(timed.trial)
        if run.status != "done" or not timed.logs:
            return Outcome(run, [])
        return Outcome(run, timed.logs, self.differs(run.arrays, log))

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

    def results(self) -> list[Metrics]:
        """Return results of the latest runs of the baseline."""
        return [run.arrays for run in self.runs[-COMPARED:]]

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
        return self.timed_run(Trial(setting), self.longest_s)


def error_of(runs: Sequence[Run]) -> float:
    """Return the standard error of one ratio to the baseline, from the baseline's runs."""
    return _scatter([run.step_ns for run in runs]) * math.sqrt(1 + 1 / BETWEEN)


def _scatter(times: Sequence[float]) -> float:
    """Return the standard deviation of the logarithms. Second differences keep a drift out of it.

    That of the second difference of normal values is √6 times theirs, and 1.48 times its median deviation.
    """
    bent = np.abs(np.diff(np.log(times), 2))
    return 1.48 / math.sqrt(6) * float(np.median(bent)) if len(bent) else 0.0


def of_groups(without: Sequence[float], under: Sequence[float]) -> list[float]:
    """Return the logarithm of the ratio of each group of blocks (`probe/knobs/switching.py`)."""
    logs = np.log(under) - np.log(without)  # the blocks of a group, outer and inner ones
    return [float(pair.mean()) for pair in np.split(logs, len(logs) // 2)]


def _level(before: float, after: float) -> float:
    """Return the baseline's logarithm between two of its runs.

    Something else that runs meanwhile can only slow a run down. A baseline that it hit would make every
    candidate beside it look fast.
    """
    return min(before, after) if abs(before - after) > DISTURBED else (before + after) / 2
