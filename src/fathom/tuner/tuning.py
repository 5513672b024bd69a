"""Tune a program: record it, search, take settings out again, prove what is left."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from fathom.atomic import write_private
from fathom.diagnosis import examine, loader_gains
from fathom.errors import BadInputError, file_errors, last_line
from fathom.machine import bounding
from fathom.recorder import Applied, default_name, resolve_command
from fathom.referee import Verdict, running
from fathom.sounding import open_store
from fathom.timing import MARGIN, Clock, SystemClock
from fathom.tuner.facts import facts_of
from fathom.tuner.judging import PROOF_RUNS, Gains, ablate, kept, prove, trial_of
from fathom.tuner.knobs import Knob, catalogue, fitting
from fathom.tuner.lanes import Lanes
from fathom.tuner.pairing import BETWEEN, Budget, Outcome, Paired, Trial
from fathom.tuner.patching.making import Patching
from fathom.tuner.priors import priors
from fathom.tuner.results import FASTER, Patch, Tried, Tuned
from fathom.tuner.running import Run, Runner, Steps, require_steps
from fathom.tuner.sandbox import Scratch
from fathom.tuner.search import Choice, Measured, Search, key
from fathom.tuner.summary import reasons, settings_of, share_of, write_proven

ABLATION_RUNS, ABLATION_SHARE = 8, 0.15  # runs, and at most this share of the budget
FINAL_RUNS, FINAL_SHARE = 12, 0.15  # that rank the fastest candidates
CONTENDERS, FINAL_PAIRS = 3, 4  # candidates that are ranked again, and measurements of each
RUN_S, MOST_COUNTED = 2.0, 200  # seconds of timed steps in a run, and steps
PROMISING = 0.02  # share of the step time from which a candidate is measured again
PAIRS = 3  # of a promising candidate
MOST_FINALISTS = 2
WARM, AHEAD = 5, 2  # steps left out, and batches that each worker makes ahead by default
LEAST_RUNS = 8  # of the search, for which a budget has to suffice
SOUNDING_SHARE, FINISH_S = 0.2, 120.0  # of the budget, and seconds to write a recording that was ended
ROUNDED = (
    "Losses and weights may differ by three times what rounding the results of the program's own operations"
    " at random does to them."
)
BEFORE = "before.fathom"  # the recording of the program as it is
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How to tune. `agree` is the relative difference of results that is accepted, `until` a loss.

    `lanes` are GPUs, as in CUDA_VISIBLE_DEVICES: candidates run side by side on those of each lane.
    """

    budget_s: float = 600.0
    folder: Path | None = None
    steps: int | None = None
    step_on: str = "auto"
    until: float | None = None
    agree: float | None = None
    margin: float = MARGIN
    in_place: bool = False
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    extra: tuple[Knob, ...] = ()
    lanes: tuple[str, ...] = ()
    replace: bool = False
    seed: int = 0
    clock: Clock = field(default_factory=SystemClock)
    progress: Say = field(default=lambda _: None)
    tell: Say = field(default=lambda _: None)


def tune(command: list[str], options: Options) -> Tuned:
    """Tune `command`; an interrupted search with the same folder goes on. Raises FathomError."""
    resolve_command(command)
    if options.in_place and len(options.lanes) > 1:
        raise BadInputError("Candidates side by side need copies of the folder; leave out --in-place.")
    folder = options.folder or Path(f"{default_name(command)}.tune")
    with _opened(folder.absolute(), command, options) as place:
        scratch = Scratch(Path.cwd(), place / "scratch", options.in_place)
        try:
            return _Tuning(command, options, place, scratch).run()
        finally:
            scratch.remove()
            # Without a recording nothing can go on, and the folder would block other searches.
            recorded = (place / BEFORE).exists()
            for left in (place / "run", *place.glob("lane-*")) if recorded else (place,):
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _opened(folder: Path, command: list[str], options: Options) -> Iterator[Path]:
    """Context manager with the folder of this search, locked. Raises BadInputError if it is another's."""
    about = {"command": command, "cwd": str(Path.cwd()), "until": options.until, "step_on": options.step_on}
    file = folder / "search.json"
    with file_errors(folder, "used"):
        if options.replace and file.exists():
            shutil.rmtree(folder)
        if folder.exists() and any(folder.iterdir()) and not file.exists():
            raise BadInputError(f"{folder} is not the folder of a search; choose another with -o.")
        folder.mkdir(parents=True, exist_ok=True)
        if file.exists() and json.loads(file.read_text()) != about:
            raise BadInputError(
                f"{folder} holds the search of another command; choose another with -o, or add --replace."
            )
        write_private(file, json.dumps(about))
    with open(folder / "lock", "w") as lock:  # noqa: PTH123
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInputError(
                f"{folder} is in use by another search; wait for it, or choose another with -o."
            ) from None
        yield folder


class _Tuning:
    """One search from recording to result."""

    def __init__(self, command: list[str], options: Options, place: Path, scratch: Scratch) -> None:
        self.command, self.options, self.place, self.scratch = command, options, place, scratch
        self.budget = Budget(options.budget_s, self._spent(), options.clock)
        self.notes: list[str] = []

    def run(self) -> Tuned:
        self._record()
        store = open_store(self.place / BEFORE)
        machine = bounding(store.machine)
        self.examination = examine(store, machine)
        facts = facts_of(store, self.examination)
        self.facts = replace(facts, by_workers=loader_gains(store, machine, facts.worker_counts))
        if len(self.options.lanes) > 1 and "cuda" not in self.facts.words:
            raise BadInputError("--gpus needs a program that computes on a GPU; this one uses the CPU.")
        knobs = self._knobs()
        self.known = priors(knobs, self.examination, self.facts)
        self.search = Search(knobs, self.known, self.place / "search.journal", self.options.seed)
        self.runner = Runner(
            self.command, self.scratch, self.place, self._steps(), self.options.step_on, self._around()
        )
        self._calibrate(self.runner)
        self.lanes = Lanes([self.paired, *map(self._lane, range(1, len(self.options.lanes)))])
        self._explore()
        self._rank_again()
        return self._conclude()

    def _around(self, lane: int = 0) -> dict[str, str]:
        """Return the environment of a lane's runs."""
        gpus = self.options.lanes[lane : lane + 1]
        return {**os.environ, **({"CUDA_VISIBLE_DEVICES": gpus[0]} if gpus else {})}

    def _lane(self, number: int) -> Paired:
        """Return another lane, whose runs have folders for themselves."""
        place = self.place / f"lane-{number}"
        scratch = Scratch(Path.cwd(), place / "scratch")
        runner = Runner(
            self.command, scratch, place, self._steps(), self.options.step_on, self._around(number)
        )
        return Paired(runner, Trial(Applied()), self.options.agree, self.paired.longest_s)

    def _spent(self) -> float:
        with suppress(OSError, ValueError):
            return float((self.place / "spent").read_text())
        return 0.0

    def _remember(self, doing: str = "") -> None:
        """Keep the time used on disk, and show the progress."""
        write_private(self.place / "spent", f"{self.budget.used_s:.1f}")
        left = f"{self.budget.used_s:.0f} of {self.budget.total_s:.0f} s"
        self.options.progress(f"{left} · {doing}")

    def _record(self) -> None:
        """Record the program as it is, once."""
        path = self.place / BEFORE
        if path.exists():
            return
        self._remember("recording the program")
        self.scratch.renew()
        part = self.place / "recording.fathom"
        fathom = [sys.executable, "-m", "fathom", "run", "-o", str(part), "--replace", "--no-measure"]
        fathom += ["--quiet", "--stop-after", "recorded", "--step-on", self.options.step_on, "--"]
        with open(self.place / "output", "w+") as said:  # noqa: PTH123
            files = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said}
            with running(
                [*fathom, *self.scratch.words(self.command)],
                cwd=self.scratch.cwd,
                env=self._around(),
                **files,
            ) as process:
                status = self._waited(process, part)
        if status or not part.exists():
            last = last_line((self.place / "output").read_text(errors="replace"))
            raise BadInputError(f"The program ended with status {status} while it was recorded: {last[:300]}")
        part.rename(path)

    def _waited(self, process: subprocess.Popen[bytes], recording: Path) -> int:
        """Wait for the recording, and return its status; end it early if it takes too much of the budget."""
        try:
            return process.wait(max(30.0, SOUNDING_SHARE * self.budget.total_s))
        except subprocess.TimeoutExpired:
            with suppress(OSError):  # asks to end the program; there is no such folder while Fathom writes
                (recording / "raw" / "stop").touch()
        try:
            process.wait(FINISH_S)
        except subprocess.TimeoutExpired:
            raise BadInputError(
                "The program could not be recorded in time; give a longer --budget."
            ) from None
        self.notes.append("The recording was ended early, so findings may be missing.")
        return 0

    def _knobs(self) -> list[Knob]:
        known = [*catalogue(), *self.options.extra]
        names = {knob.id for knob in known}
        if unknown := {*self.options.only, *self.options.without} - names:
            raise BadInputError(f"'{min(unknown)}' is not a knob; the knobs are {', '.join(sorted(names))}.")
        wanted = set(self.options.only or names) - set(self.options.without)
        knobs = fitting([knob for knob in known if knob.id in wanted], self.facts)
        if not knobs:
            raise BadInputError("No knob fits this program; `fathom tune --explain` lists them.")
        return knobs

    def _steps(self) -> Steps:
        step_s = (self.examination.step.basis_ms or 100.0) / 1e3
        counted = self.options.steps or round(min(MOST_COUNTED, max(12, RUN_S / step_s)))
        ahead = AHEAD * self.facts.workers  # batches that say nothing about the speed of the workers
        return Steps(WARM + ahead, counted, min(10, counted), self.options.until)

    def _calibrate(self, runner: Runner) -> None:
        """Run the program as it is, and check that the budget suffices."""
        self._remember("running the program as it is")
        longest_s = max(30.0, self.budget.left_s / 4)
        first = runner.run(Applied(), longest_s)
        require_steps(first)
        longest_s = 3 * first.seconds + 10
        self.paired = Paired(runner, Trial(Applied()), self.options.agree, longest_s)
        self.paired.runs, self.paired.seconds = [first], [first.seconds]
        least = (PROOF_RUNS + LEAST_RUNS) * first.seconds
        if self.budget.left_s < least:
            total = self.budget.used_s + 1.5 * least
            raise BadInputError(
                f"The budget is too short: a run takes {first.seconds:.0f} s, and search and proof need"
                f" {PROOF_RUNS + LEAST_RUNS} runs or more; give --budget {total / 60:.0f}m or fewer --steps."
            )

    # the search

    def _reserved_s(self) -> float:
        """Return the time kept for proof and ablation; a short budget leaves less for the ablation."""
        ranked = self.search.ranked()
        proof_s = self._proof_s(ranked[0] if ranked else Measured({}))
        return proof_s + self._share_s(ABLATION_RUNS, ABLATION_SHARE) + self._share_s(FINAL_RUNS, FINAL_SHARE)

    def _share_s(self, runs: int, share: float) -> float:
        return min(runs * self.paired.base_s, share * self.budget.total_s)

    def _proof_s(self, candidate: Measured) -> float:
        """Return the time of a proof: candidates that lost may take longer, or compile."""
        return PROOF_RUNS * (self.paired.base_s + max(self.paired.base_s, candidate.seconds)) / 2

    def _explore(self) -> None:
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

    def _rank_again(self) -> None:
        """Measure the fastest candidates again: the fastest of many measured once may owe it to chance."""
        until_s = self.budget.left_s - self._share_s(FINAL_RUNS, FINAL_SHARE)
        while again := self.search.contenders(CONTENDERS, FINAL_PAIRS):
            if self.budget.left_s - (len(again) + 1) * self.paired.base_s < until_s:
                break
            self._remember(f"{self._best()}measuring the fastest again")
            trials = [trial_of(self.search, known.choice) for known in again]
            for known, outcome in zip(again, self.paired.measure(trials, self._remember_only), strict=True):
                self.search.add(_measured(known.choice, outcome))

    def _half_spent(self) -> bool:
        return self.budget.used_s > (self.budget.total_s - self._reserved_s()) * 0.7

    def _is_known(self, choice: Choice) -> bool:
        known = self.search.measured.get(key(choice))
        return not choice or (known is not None and len(known.logs) >= PAIRS)

    def _measure(self, batch: list[tuple[object, Choice]]) -> None:
        names = " and ".join(", ".join(choice.values()) or "as it is" for _, choice in batch)
        self._remember(f"{self._best()}{len(self.search.measured)} tried · now {names}")
        outcomes = self.lanes.measure(
            [trial_of(self.search, choice) for _, choice in batch], self._remember_only
        )
        results = [_measured(choice, outcome) for (_, choice), outcome in zip(batch, outcomes, strict=True)]
        again = [result for result in results if (result.gain or 0) > PROMISING and result.status == "done"]
        if again:  # a second look at candidates that look faster, before the sampler believes it
            trials = [trial_of(self.search, result.choice) for result in again]
            for result, outcome in zip(again, self.lanes.measure(trials, self._remember_only), strict=True):
                _add(result, outcome)
        for (trial, choice), result in zip(batch, results, strict=True):
            self.search.tell(trial, choice, result)

    def _remember_only(self) -> None:
        write_private(self.place / "spent", f"{self.budget.used_s:.1f}")

    def _best(self) -> str:
        ranked = self.search.ranked()
        return f"best {100 * (ranked[0].gain or 0):.0f} % faster · " if ranked else ""

    # the result

    def _conclude(self) -> Tuned:
        finalists = [m for m in self.search.ranked() if (m.gain or 0) >= self.options.margin]
        finalists.sort(key=lambda known: len(known.logs) < PAIRS)  # a single fast run may be luck
        unproven: list[Tried] = []
        for number, finalist in enumerate(finalists[:MOST_FINALISTS]):
            if number and self.budget.left_s < self._proof_s(finalist):
                break
            gains = (
                Gains()
                if number
                else ablate(self.search, self.paired, finalist.choice, self.budget, self._remember)
            )
            choice = kept(finalist.choice, gains)
            self._remember(f"proving {', '.join(choice.values())}")
            verdict = prove(
                self.search, self.paired, choice, self.budget, self.options.margin, self._remember
            )
            if verdict.verdict == FASTER:
                return self._tuned(choice, gains.logs, verdict, finalist.choice, unproven)
            unproven.append(
                self.search.row_of(Measured(choice, finalist.logs, verdict.verdict, reasons(verdict)))
            )
        return self._tuned({}, {}, None, {}, unproven)

    def _tuned(
        self,
        choice: Choice,
        gains: dict[str, float],
        verdict: Verdict | None,
        finalist: Choice,
        unproven: list[Tried],
    ) -> Tuned:
        applied = self.search.setting(choice)
        base_ms = [run.step_ns / 1e6 for run in self.paired.runs]
        rows = self.search.tried()
        offered = [row for row in rows if row.status == "differs" and (row.gain or 0) > PROMISING]
        result = Tuned(
            command=self.command,
            settings=list(settings_of(self.search, choice, gains, verdict)),
            verdict=verdict,
            tried=rows,
            budget_s=self.budget.total_s,
            seconds=self.budget.used_s,
            runs=len(self.paired.seconds),
            step_ms=sorted(base_ms)[len(base_ms) // 2],
            until=self.options.until,
            sounding=str(self.place / BEFORE),
            removed=[
                Tried({k: v}, "done", share_of(gains.get(k)), self.known[k].of(v))
                for k, v in finalist.items()
                if k not in choice
            ],
            unproven=[*unproven, *offered],
            environment=applied.environment,
            acts=applied.acts,
            arguments=applied.arguments,
            load=os.getloadavg()[0] / self.facts.cores,
            notes=[*self.notes, *self._left_out(), *([ROUNDED] if self.paired.rounded else [])],
        )
        self._write(result, applied, choice)
        return result

    def _patch(self, choice: Choice) -> Patch:
        """Return the settings as a patch of the program's source."""
        self._remember("writing the settings into a copy of the program, and running it")
        patience_s = self.paired.longest_s + self.search.patience_s(choice)

        def differs(run: Run) -> str:
            return self.paired.differs(run.arrays, -1.0)

        patching = Patching(self.runner, self.scratch, patience_s, differs)
        return patching.patch(list(self.search.values(choice)), self.place / "settings.patch")

    def _left_out(self) -> list[str]:
        """Return a note on settings for which there was no time."""
        count = self.search.untried()
        if not count:
            return []
        settings = "setting was" if count == 1 else "settings were"
        return [f"{count} more {settings} not tried, to leave time for a proof; give a longer --budget."]

    def _write(self, result: Tuned, applied: Applied, choice: Choice) -> None:
        if result.gain is not None:
            carries = {knob.id: knob.carries for knob, _ in self.search.values(choice)}
            result.file = str(self.place / "settings.toml")
            write_proven(Path(result.file), result, replace(applied, knobs=choice, carries=carries))
            result.patch = self._patch(choice)
        write_private(self.place / "tuned.json", msgspec.json.encode(result).decode())


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
