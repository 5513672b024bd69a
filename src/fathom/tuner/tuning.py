"""Tune a program: record it, search, take settings out again, prove what is left."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec

from fathom.atomic import write_private
from fathom.diagnosis import examine, loader_gains
from fathom.errors import BadInputError
from fathom.machine import bounding
from fathom.recorder import Applied, default_name, resolve_command
from fathom.referee import Verdict
from fathom.sounding import open_store
from fathom.tuner.exploring import LARGE, PROMISING, Exploration
from fathom.tuner.facts import facts_of
from fathom.tuner.folder import RESULT, SPENT, opened, spent_s
from fathom.tuner.judging import OVER, PATCH_RUNS, PROOF_RUNS, Gains, ablate, kept, left_s, prove, too_small
from fathom.tuner.knobs import Knob, fitting
from fathom.tuner.lanes import Lanes
from fathom.tuner.options import LEAST_RUNS, Options
from fathom.tuner.pairing import Budget, Paired, Trial
from fathom.tuner.patching.making import Patching
from fathom.tuner.priors import priors
from fathom.tuner.recording import record
from fathom.tuner.results import FASTER, Patch, Tried, Tuned, label_of
from fathom.tuner.running import Run, Runner, Steps, Switches, require_steps
from fathom.tuner.sandbox import Scratch
from fathom.tuner.search import Choice, Measured, Search
from fathom.tuner.summary import reasons, settings_of, share_of, write_proven

RUN_S, MOST_COUNTED = 2.0, 200  # seconds of timed steps in a run, and steps
MOST_FINALISTS = 2
BLOCKS, LEAST_BLOCK = 12, 3  # of a run that switches settings, and steps of a block
GROUPS, FEWEST = 3, 2  # of four blocks, and of a program with long steps
MOST_SWITCHED, SWITCHED_SHARE = 5.0, 0.05  # times the timed steps of another run, or of the budget, at most
WARM, AHEAD = 5, 2  # steps left out, and batches that each worker makes ahead by default
ROUNDED = (
    "Losses and weights may differ by three times what rounding the results of the program's own operations"
    " at random does to them."
)
BUSY, SHARED = 2.0, 0.5  # load averages per core: after a search, and before it
BESIDE = (
    "The machine was busy (load {:.1f} per core). Unless the program alone causes this, search again on an"
    " idle machine, which can prove smaller gains."
)
EARLIER = (
    "The machine was busy before the search (load {:.1f} per core). If other programs go on, small gains"
    " cannot be proven."
)
UNPATCHED = "No time was left to write the settings into the code; a longer --budget allows it."
BEFORE = "before.fathom"  # the recording of the program as it is


def tune(command: list[str], options: Options) -> Tuned:
    """Tune `command`; an interrupted search with the same folder goes on. Raises FathomError."""
    resolve_command(command)
    options.check()
    folder = options.folder or Path(f"{default_name(command)}.tune")
    with opened(folder.absolute(), command, options) as place:
        scratch = Scratch(Path.cwd(), place / "scratch", options.in_place)
        try:
            return _Tuning(command, options, place, scratch).run()
        finally:
            scratch.remove()
            # Without a recording nothing can go on, and the folder would block other searches.
            recorded = (place / BEFORE).exists()
            for left in (place / "run", *place.glob("lane-*")) if recorded else (place,):
                shutil.rmtree(left, ignore_errors=True)


class _Tuning:
    """One search from recording to result."""

    def __init__(self, command: list[str], options: Options, place: Path, scratch: Scratch) -> None:
        self.command, self.options, self.place, self.scratch = command, options, place, scratch
        self.budget = Budget(options.budget_s, spent_s(place), options.clock)
        self.notes: list[str] = []

    def run(self) -> Tuned:
        if (load := _load()) > SHARED:
            self.options.tell(EARLIER.format(load))
        self._record()
        store = open_store(self.place / BEFORE)
        machine = bounding(store.machine)
        self.examination = examine(store, machine)
        facts = facts_of(store, self.examination)
        now, idle = (loader_gains(store, machine, facts.worker_counts, alone) for alone in (False, True))
        self.facts = replace(facts, by_workers=now, by_workers_alone=idle)
        if len(self.options.lanes) > 1 and "cuda" not in self.facts.words:
            raise BadInputError("--gpus needs a program that computes on a GPU; this one uses the CPU.")
        knobs = self._knobs()
        self.known = priors(knobs, self.examination, self.facts)
        self.search = Search(knobs, self.known, self.place / "search.journal", self.options.seed)
        self.runner = Runner(
            self.command,
            self.scratch,
            self.place,
            self._steps(),
            self.options.step_on,
            self._around(),
            self._switches(),
        )
        self._calibrate()
        self.lanes = Lanes([self.paired, *map(self._lane, range(1, len(self.options.lanes)))])
        self.exploration = Exploration(
            self.search,
            self.paired,
            self.lanes,
            self.budget,
            self._remember,
            self._keep,
            self.options.tell,
        )
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
            self.command,
            scratch,
            place,
            self._steps(),
            self.options.step_on,
            self._around(number),
            self._switches(),
        )
        return Paired(runner, Trial(Applied()), self.options.agree, self.paired.longest_s)

    def _keep(self) -> None:
        write_private(self.place / SPENT, f"{self.budget.used_s:.1f}")

    def _remember(self, doing: str = "") -> None:
        """Keep the time used on disk, and show the progress."""
        self._keep()
        left = f"{self.budget.used_s:.0f} of {self.budget.total_s:.0f} s"
        self.options.progress(f"{left} · {doing}")

    def _record(self) -> None:
        """Record the program as it is, once."""
        path = self.place / BEFORE
        if not path.exists():
            self._remember("recording the program")
            self.notes += record(
                self.command,
                path,
                self.scratch,
                self.options.step_on,
                self._around(),
                self.budget.total_s,
            )

    def _knobs(self) -> list[Knob]:
        knobs = fitting(self.options.knobs(), self.facts)
        if not knobs:
            raise BadInputError("No knob fits this program; `fathom tune --explain` lists them.")
        return knobs

    def _steps(self) -> Steps:
        step_s = (self.examination.step.basis_ms or 100.0) / 1e3
        counted = self.options.steps or round(min(MOST_COUNTED, max(12, RUN_S / step_s)))
        ahead = AHEAD * self.facts.workers  # batches that say nothing about the speed of the workers
        return Steps(WARM + ahead, counted, min(10, counted), self.options.until)

    def _switches(self) -> Switches | None:
        """Return the blocks of a run that switches settings; None if they take too long or change nothing.

        A block leaves out what the loader's workers made ahead of it.
        """
        steps = self._steps()
        skip = max(1, AHEAD * self.facts.workers)
        every = max(LEAST_BLOCK, steps.counted // BLOCKS, skip)
        step_s = (self.examination.step.basis_ms or 100.0) / 1e3
        if self.examination.step.kind == "replay":  # graphs keep the settings of their capture
            return None
        usual_s = MOST_SWITCHED * max(RUN_S, steps.counted * step_s)
        longest_s = max(usual_s, SWITCHED_SHARE * self.budget.total_s)
        both = (Switches(steps.warm, skip, every, groups) for groups in (GROUPS, FEWEST))
        within = zip(both, (usual_s, longest_s), strict=True)
        return next((each for each, most_s in within if each.steps * step_s <= most_s), None)

    def _calibrate(self) -> None:
        """Run the program as it is, and check that the budget suffices."""
        runner = self.runner
        self._remember("running the program as it is")
        longest_s = max(30.0, self.budget.left_s / 4)
        first = runner.run(Applied(), longest_s)
        if first.status == "too slow":
            raise self._too_short(
                f"the program ran no {runner.steps.counted} steps in {longest_s:.0f} s", longest_s
            )
        require_steps(first)
        longest_s = 3 * first.seconds + 10
        self.paired = Paired(runner, Trial(Applied()), self.options.agree, longest_s)
        self.paired.start(first)
        if self.budget.left_s < (self._least_runs() - 1) * first.seconds:
            raise self._too_short(f"a run takes {first.seconds:.0f} s", first.seconds)

    def _least_runs(self) -> int:
        """Return the least number of runs; fewer if a large predicted gain can be proven at once."""
        return PROOF_RUNS + 1 if self.search.hope(LARGE) else LEAST_RUNS

    def _too_short(self, why: str, run_s: float) -> BadInputError:
        """Return the error of a budget that does not hold search and proof, with one that would do."""
        minutes = math.ceil((self.budget.used_s + 1.5 * LEAST_RUNS * run_s) / 60)
        return BadInputError(
            f"The budget is too short: {why}, and search and proof need {self._least_runs()} runs or more;"
            f" give --budget {minutes}m or fewer --steps."
        )

    # the result

    def _conclude(self) -> Tuned:
        """Search, and prove the best settings."""
        unproven: list[Tried] = []
        proposal, late = self.exploration.run(), False
        while hope := self.exploration.hope(self.exploration.best_gain):
            if result := self._at_once(hope, unproven):
                return result
            proposal, late = self.exploration.run(), True
        if result := self._finalist(proposal, late, unproven):
            return result
        while hope := self.exploration.hope(0.0):
            if result := self._at_once(hope, unproven):
                return result
        return self._tuned({}, {}, None, {}, unproven)

    def _finalist(self, proposal: Choice, late: bool, unproven: list[Tried]) -> Tuned | None:
        """Prove the fastest choices until one is faster; if it is `late`, only while there is time.

        Choices whose shortest proof takes longer than the time left come last.
        """
        finalists = self.search.finalists(proposal, self.options.margin, self.paired.error)
        least_s = self.exploration.least_proof_s
        finalists.sort(key=lambda known: least_s(known) > left_s(self.budget))
        for number, finalist in enumerate(finalists[:MOST_FINALISTS]):
            if (number or late) and self.budget.left_s < self.exploration.proof_s(finalist):
                break
            gains = (
                Gains()
                if number
                else ablate(
                    self.search, self.paired, finalist, least_s(finalist), self.budget, self._remember
                )
            )
            choice = kept(finalist.choice, gains)
            self._remember(f"proving {label_of(choice)}")
            verdict = self._proof(choice)
            if verdict.verdict == FASTER:
                return self._tuned(choice, gains.combined, verdict, finalist.choice, unproven)
            unproven.append(
                self.search.row_of(Measured(choice, finalist.logs, verdict.verdict, reasons(verdict)))
            )
        return None

    def _proof(self, choice: Choice, first: Run | None = None) -> Verdict:
        margin = self.options.margin
        return prove(self.search, self.paired, choice, self.budget, margin, self._remember, first)

    def _at_once(self, choice: Choice, unproven: list[Tried]) -> Tuned | None:
        """Prove a setting of which a large gain is predicted and nothing measured, as time is short."""
        self._remember(f"proving {label_of(choice)} at once, as its predicted gain is large")
        result, first = self.exploration.begin(choice)
        if result.status == "done" and (result.gain or 0.0) > LARGE / 2:
            verdict = self._proof(choice, first)
            if verdict.verdict == FASTER:
                return self._tuned(choice, {}, verdict, choice, unproven)
            result = replace(result, status=verdict.verdict, why=reasons(verdict))
            unproven.append(self.search.row_of(result))
        self.search.add(result)
        return None

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
        load, small = _load(), too_small(self.paired, self.budget.total_s)
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
            load=load,
            notes=[
                *self.notes,
                *([BESIDE.format(load)] if load > BUSY else []),
                *([small] if small and not choice else []),
                *self._left_out(),
                *([ROUNDED] if self.paired.rounded else []),
            ],
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
        count = len(self.search.untried())
        if not count:
            return []
        settings = "setting was" if count == 1 else "settings were"
        return [f"{count} more {settings} not tried, for lack of time to prove them; give a longer --budget."]

    def _write(self, result: Tuned, applied: Applied, choice: Choice) -> None:
        if result.gain is not None:
            carries = {knob.id: knob.carries for knob, _ in self.search.values(choice)}
            result.file = str(self.place / "settings.toml")
            write_proven(Path(result.file), result, replace(applied, knobs=choice, carries=carries))
            if self.budget.left_s + OVER * self.budget.total_s >= PATCH_RUNS * self.paired.run_s:
                result.patch = self._patch(choice)
            else:
                result.notes.append(UNPATCHED)
        write_private(self.place / RESULT, msgspec.json.encode(result).decode())


def _load() -> float:
    """Return the load average per core of the host, whatever cores the program may use."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)
