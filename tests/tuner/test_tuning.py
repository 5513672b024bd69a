"""Whole searches of simulated programs: the best settings are found and proven, wrong ones never offered."""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")

from fathom.errors import BadInputError
from fathom.recorder import Applied, read_settings
from fathom.tuner import Options, Tuned, tune, tuning
from fathom.tuner.exploring import Exploration
from fathom.tuner.judging import ablate
from fathom.tuner.knobs import catalogue
from fathom.tuner.lanes import Lanes
from fathom.tuner.pairing import Budget, Paired, Trial
from fathom.tuner.priors import Prior, priors
from fathom.tuner.running import Run
from fathom.tuner.search import Measured, Search
from tests.support.clocks import FakeClock
from tests.tuner import simulated
from tests.tuner.simulated import Compiling, Simulated

ONLY = ("loader", "optimizer", "garbage", "host-memory", "threads", "matmul-precision")
COMMAND = [sys.executable, "train.py"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("train.py").write_text("print('not run')\n")
    return tmp_path / "work"


def run(program: Simulated, place: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Tuned:
    monkeypatch.setattr(tuning, "Runner", program)
    monkeypatch.setattr("fathom.tuner.options.inventory", lambda: {"gpus": [{}] * 3})
    folder = place / "train.tune"
    if not folder.exists():
        folder.mkdir()
        simulated.sounding(folder / "before.fathom")
        about = {"command": COMMAND, "cwd": str(place), "until": None, "step_on": "auto"}
        (folder / "search.json").write_text(json.dumps(about))
    return tune(COMMAND, Options(clock=program.clock, **{"only": ONLY, "budget_s": 700.0} | options))


def factor(setting: Applied) -> Any:
    """A loader that starves the step, an optimizer worth 10 %, garbage that costs, threads that crash."""
    loader = setting.acts.get("loader", {}).get("num_workers")
    time = {None: 1.0, 0: 1.0, 1: 0.7}.get(loader, 0.65)
    time *= 0.9 if setting.acts.get("optimizer") == "fused" else 1.0
    time *= 1.1 if setting.acts.get("garbage") else 1.0
    if setting.environment.get("OMP_NUM_THREADS") == "1":
        return Run("crashed", 2.0, why="it ended with status 1: planted")
    return time


def precise(setting: Applied) -> float:
    """Lower precision gives other results."""
    return 1e-3 if "matmul_precision" in setting.acts else 0.0


def test_what_pays_is_proven_and_nothing_else_is_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Simulated(FakeClock(), factor)
    result = run(program, place, monkeypatch)
    assert {setting.knob for setting in result.settings} == {"loader", "optimizer"}
    assert result.verdict is not None and result.verdict.verdict == "faster"
    assert result.gain == pytest.approx(
        1 - 0.9 * program.factor(Applied(acts=dict(result.acts))) / 0.9, abs=0.02
    )
    realised = {setting.knob: setting.realised for setting in result.settings}
    assert realised["optimizer"] == pytest.approx(0.1, abs=0.02)
    assert result.seconds <= 1.1 * 700
    crashed = [row for row in result.tried if row.status == "crashed"]
    assert crashed and "planted" in crashed[0].why
    applied = read_settings(Path(result.file or ""))
    assert applied.acts == result.acts and set(applied.knobs) == {"loader", "optimizer"}
    assert result.patch is not None and result.patch.file is None
    assert set(result.patch.left) == {"loader", "optimizer"}  # each with a reason


def test_a_second_search_has_the_same_winner(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    winners = []
    for seed in (1, 2):
        program = Simulated(FakeClock(), factor)
        program.random.seed(seed)
        result = run(program, place, monkeypatch, seed=seed)
        winners.append(sorted(setting.knob for setting in result.settings))
        shutil.rmtree(place / "train.tune")
    assert winners[0] == winners[1] == ["loader", "optimizer"]


@pytest.mark.parametrize(("between", "proven"), [(0.2, True), (0.01, True), (0.2, False)])
def test_a_noisy_host_is_named_early_and_hides_no_large_gain(
    place: Path, monkeypatch: pytest.MonkeyPatch, between: float, proven: bool
) -> None:
    def quick(setting: Applied) -> float:
        return 0.5 if proven and setting.acts.get("loader", {}).get("num_workers") else 1.0

    program, lines = Simulated(FakeClock(), quick, between=between), list[tuple[float, str]]()
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 0.1, 0.1))
    result = run(
        program,
        place,
        monkeypatch,
        budget_s=240.0,
        tell=lambda text: lines.append((program.clock.ns / 1e9, text)),
    )
    assert ("loader" in {setting.knob for setting in result.settings}) == proven
    named = [seconds for seconds, text in lines if "cannot be proven" in text]
    assert bool(named) == (between > 0.1) and max(named, default=0) < 120
    noted = any("cannot be proven" in note for note in result.notes)
    assert noted == (between > 0.1 and not proven)


def lower_precision(setting: Applied) -> float:
    return 0.88 if "autocast" in setting.acts else 1.0


@pytest.mark.parametrize("switches", [True, False])
def test_settings_switched_within_runs_are_proven_where_processes_differ_by_more(
    place: Path, monkeypatch: pytest.MonkeyPatch, switches: bool
) -> None:
    within = lower_precision if switches else None
    program = Simulated(FakeClock(), lower_precision, between=0.15, within=within)
    program.random.seed(2)  # in 1 of 24 searches, another setting looks faster by chance
    result = run(program, place, monkeypatch, only=("autocast", "attention", "garbage"), budget_s=300.0)
    assert [setting.knob for setting in result.settings] == (["autocast"] if switches else [])
    if result.verdict is not None:
        assert result.verdict.ratio == pytest.approx(0.88, abs=0.01)
        assert result.verdict.agreement  # results of runs that did not switch


def test_a_gain_that_separate_runs_contradict_is_not_offered(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Simulated(FakeClock(), lambda _: 1.0, within=lambda setting: lower_precision(setting) - 0.1)
    result = run(program, place, monkeypatch, only=("autocast", "garbage"))
    assert not result.settings
    assert any("separate runs" in row.why for row in result.unproven)


def test_a_candidate_that_crashes_in_its_proof_is_not_blamed_on_the_program(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashes_later(setting: Applied) -> Any:
        seen = program.ran.count(setting)
        return Run("crashed", 2.0, why="planted") if setting.acts and seen > 1 else lower_precision(setting)

    program = Simulated(FakeClock(), crashes_later, within=lower_precision)
    result = run(program, place, monkeypatch, only=("autocast", "garbage"))
    assert not result.settings and "planted" in result.unproven[0].why


@pytest.mark.parametrize("status", ["crashed", "out of memory", "not applied", "no steps"])
def test_settings_that_cannot_be_switched_after_all_get_separate_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch, status: Any
) -> None:
    program = Simulated(FakeClock(), lower_precision, within=lambda _: Run(status, 2.0, why="planted"))
    result = run(program, place, monkeypatch, only=("autocast", "garbage"))
    assert [setting.knob for setting in result.settings] == ["autocast"]


def test_a_proof_never_mixes_pairs_of_both_kinds(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_later(setting: Applied) -> Any:
        calls.append(setting)
        return Run("crashed", 2.0, why="planted") if len(calls) > 6 else lower_precision(setting)

    calls: list[Applied] = []
    program = Simulated(FakeClock(), lower_precision, within=fails_later)
    result = run(program, place, monkeypatch, only=("autocast", "garbage"))
    assert [setting.knob for setting in result.settings] == ["autocast"]
    assert result.verdict is not None and any("separate runs" in note for note in result.verdict.notes)


def test_switched_settings_with_other_results_are_not_offered(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def off(setting: Applied) -> float:
        return 1e-3 if "autocast" in setting.acts else 0.0

    program = Simulated(FakeClock(), lower_precision, off, within=lower_precision)
    result = run(program, place, monkeypatch, only=("autocast", "garbage"))
    assert not result.settings and {row.status for row in result.unproven} == {"differs"}


def test_other_load_is_named_before_anything_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    program = Simulated(FakeClock(), lambda _: 1.0)
    monkeypatch.setattr("os.getloadavg", lambda: (8.0, 8.0, 8.0))
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    run(program, place, monkeypatch, budget_s=135.0, only=("garbage",), tell=lines.append)
    assert "load 2.0 per core" in lines[0]


def test_lanes_side_by_side_have_the_same_winner(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Simulated(FakeClock(), factor)
    result = run(program, place, monkeypatch, lanes=("0", "1", "2"))
    assert sorted(setting.knob for setting in result.settings) == ["loader", "optimizer"]
    assert {path.name for path in (place / "train.tune").iterdir()}.isdisjoint({"run", "lane-1", "lane-2"})


@pytest.mark.parametrize("seed", range(6))
def test_disturbed_runs_crown_no_other_winner(
    place: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    program = Simulated(FakeClock(), factor, between=0.02, disturbed=0.05)
    program.random.seed(seed)
    result = run(program, place, monkeypatch, seed=seed)
    finalist = {setting.knob for setting in result.settings} or set(result.unproven[0].choice)
    assert finalist >= {"loader", "optimizer"} and "garbage" not in finalist


def test_other_results_are_not_offered_but_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def quick(setting: Applied) -> float:
        return 0.5 if "matmul_precision" in setting.acts else 1.0

    result = run(
        Simulated(FakeClock(), quick, precise), place, monkeypatch, only=("matmul-precision", "garbage")
    )
    assert result.settings == [] and result.gain is None and result.file is None
    assert any(row.status == "differs" and (row.gain or 0) > 0.4 for row in result.unproven)


@pytest.mark.parametrize(("error", "offered"), [(5e-4, True), (5e-3, False)])
def test_what_rounding_of_the_program_itself_explains_is_no_other_result(
    place: Path, monkeypatch: pytest.MonkeyPatch, error: float, offered: bool
) -> None:
    def quick(setting: Applied) -> float:
        return 0.5 if "matmul_precision" in setting.acts else 1.0

    def off(setting: Applied) -> float:
        seed = setting.acts.get("rounding")
        rounding = 0.0 if seed is None else (-4e-4, 4e-4)[seed % 2]
        return error if "matmul_precision" in setting.acts else rounding

    program = Simulated(FakeClock(), quick, off)
    result = run(program, place, monkeypatch, only=("matmul-precision", "garbage"))
    assert [setting.knob for setting in result.settings] == (["matmul-precision"] if offered else [])
    assert any("rounding" in note for note in result.notes)
    seeds = [setting.acts["rounding"] for setting in program.ran if "rounding" in setting.acts]
    assert seeds == sorted(set(seeds))  # measured once


def test_declared_agreement_accepts_them(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def quick(setting: Applied) -> float:
        return 0.5 if "matmul_precision" in setting.acts else 1.0

    program = Simulated(FakeClock(), quick, precise)
    result = run(program, place, monkeypatch, only=("matmul-precision", "garbage"), agree=0.01)
    assert [setting.knob for setting in result.settings] == ["matmul-precision"]


def test_a_program_that_nothing_speeds_up_gets_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(Simulated(FakeClock(), lambda _: 1.0, noise=0.03), place, monkeypatch)
    assert result.settings == [] and result.gain is None


def test_a_slow_candidate_that_lost_does_not_end_the_search(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(setting: Applied) -> Any:
        threads = setting.environment.get("OMP_NUM_THREADS")
        return Run("crashed", 120.0, why="planted") if threads else factor(setting)

    result = run(Simulated(FakeClock(), slow), place, monkeypatch, budget_s=900.0)
    assert {setting.knob for setting in result.settings} == {"loader", "optimizer"}


@pytest.mark.parametrize("failures", [1, 2])
def test_a_failed_run_of_the_program_as_it_is_is_repeated_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    program, hit = Simulated(FakeClock(), factor), list[int]()

    def disturbed(setting: Applied) -> Any:
        if setting == Applied() and len(program.ran) > 10 and len(hit) < failures:
            hit.append(len(program.ran))
            return Run("too slow", 30.0, why="it was ended after 30 s")
        return factor(setting)

    program.factor = disturbed
    if failures == 1:
        assert {setting.knob for setting in run(program, place, monkeypatch).settings} == {
            "loader",
            "optimizer",
        }
        return
    with pytest.raises(BadInputError, match="failed twice: it was ended after 30 s"):
        run(program, place, monkeypatch)
    assert run(program, place, monkeypatch).settings  # results until then are kept


def test_slower_runs_are_not_judged_by_their_results(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate whose results differ by rounding once ran slower by chance, and counted as different."""

    def off(setting: Applied) -> float:
        return (
            1e-5
            if setting.acts.get("garbage")
            else {None: 0.0, 0: -4e-5, 1: 4e-5}.get(setting.acts.get("rounding"), 0.0)
        )

    result = run(Simulated(FakeClock(), factor, off), place, monkeypatch, only=("garbage",))
    slower = [row for row in result.tried if row.gain is not None and row.gain < 0]
    assert slower and {row.status for row in slower} == {"done"}


def test_a_search_whose_fastest_settings_differ_tries_the_others(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quick(setting: Applied) -> float:
        return 0.5 if "matmul_precision" in setting.acts else 1.0

    result = run(Simulated(FakeClock(), quick, precise), place, monkeypatch, budget_s=250.0)
    assert result.settings == [] and result.seconds > 0.6 * 250


def test_a_candidate_that_could_not_be_proven_in_time_is_ended(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[float] = []

    class Endless(Simulated):
        def run(self, setting: Applied, patience_s: float, work: float = 1.0) -> Run:
            if "compile" in setting.acts:
                allowed.append(patience_s)
                self.clock.sleep(patience_s)
                return Run("too slow", patience_s, why="planted")
            return super().run(setting, patience_s, work)

    result = run(Endless(FakeClock(), factor), place, monkeypatch, budget_s=300.0, only=("compile", "loader"))
    assert all(
        "compiling; give a longer --budget" in row.why for row in result.tried if row.status == "too slow"
    )
    run_s = simulated.START_S + 2.5
    assert allowed and max(allowed) + 14 * run_s < 300  # the proof of another candidate
    assert {setting.knob for setting in result.settings} == {"loader"} and result.seconds < 1.1 * 300


def test_only_the_first_run_of_a_candidate_counts_as_compiling(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quick(setting: Applied) -> float:
        return 0.5 if "compile" in setting.acts else 1.0

    program = Compiling(FakeClock(), quick)
    program.first_s, program.later_s = 45.0, 4.0  # kernels are on disk
    result = run(program, place, monkeypatch, budget_s=240.0, only=("compile", "garbage"))
    assert {setting.knob for setting in result.settings} == {"compile"}
    assert result.seconds <= 1.1 * 240


@pytest.mark.parametrize("budget_s", [420.0, 500.0, 700.0])
def test_the_proof_of_a_candidate_that_compiles_ends_in_time(
    place: Path, monkeypatch: pytest.MonkeyPatch, budget_s: float
) -> None:
    def quick(setting: Applied) -> float:
        return 0.4 if "compile" in setting.acts else 1.0

    def off(setting: Applied) -> float:
        rounded = {None: 0.0, 0: -4e-5, 1: 4e-5}.get(setting.acts.get("rounding"), 0.0)
        return 2e-5 if "compile" in setting.acts else rounded

    program = Compiling(FakeClock(), quick, off)
    program.start_s, program.first_s, program.later_s = 10.0, 15.0, 15.0
    result = run(program, place, monkeypatch, budget_s=budget_s, only=("compile", "garbage"))
    assert {setting.knob for setting in result.settings} == {"compile"}
    assert result.seconds <= 1.1 * budget_s


def hopeful(monkeypatch: pytest.MonkeyPatch, shares: dict[str, float]) -> None:
    """Let findings predict these shares of the step for the values of the knob `compile`."""

    def known(*given: Any) -> dict[str, Prior]:
        return priors(*given) | {"compile": Prior(None, "findings", values=shares)}

    monkeypatch.setattr(tuning, "priors", known)


GRAPHS = "whole with CUDA graphs"


def generating(setting: Applied) -> Any:
    """A model that CUDA graphs crash, and torch.compile makes twice as fast."""
    if setting.acts.get("compile") == {"mode": "reduce-overhead"}:
        return Run("crashed", 1.0, why="planted")
    return 0.45 if "compile" in setting.acts else 1.0


def test_a_large_predicted_gain_is_proven_at_once_if_time_is_short(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hopeful(monkeypatch, {GRAPHS: 0.4, "whole": 0.3})
    program = Compiling(FakeClock(), generating)
    program.start_s, program.first_s, program.later_s = 8.0, 25.0, 5.0
    result = run(program, place, monkeypatch, budget_s=270.0, only=("compile", "garbage", "threads"))
    assert [setting.label for setting in result.settings] == ["compile: whole"]
    assert [row.status for row in result.tried] == ["crashed"] and result.seconds < 1.08 * 270
    compiled = [setting for setting in program.ran if setting.acts.get("compile") == {}]
    assert len(compiled) in (6, 7)  # those of the proof, and the one that looks for places in the code


def test_a_large_predicted_gain_that_is_none_leaves_time_for_others(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hopeful(monkeypatch, {GRAPHS: 0.4})

    def quick(setting: Applied) -> float:
        return 0.6 if setting.acts.get("optimizer") == "fused" else 1.0

    program = Compiling(FakeClock(), quick)
    program.start_s, program.first_s = 4.0, 30.0
    result = run(program, place, monkeypatch, budget_s=190.0, only=("compile", "optimizer"))
    assert [setting.label for setting in result.settings] == ["optimizer: fused"]
    assert [row.gain for row in result.tried if "compile" in row.choice] == [pytest.approx(0, abs=0.1)]


def test_a_proof_whose_runs_always_compile_ends_in_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hopeful(monkeypatch, {"whole": 0.3})
    program = Compiling(FakeClock(), generating)
    program.start_s, program.first_s, program.later_s = 8.0, 30.0, 30.0
    result = run(program, place, monkeypatch, budget_s=220.0, only=("compile",))
    assert not result.settings and result.seconds < 1.1 * 220
    assert [(row.label, row.status) for row in result.tried] == [("compile: whole", "refused")]


def test_the_program_runs_again_only_beside_a_candidate_that_was_timed() -> None:
    program = Simulated(FakeClock(), factor)
    paired = Paired(program, Trial(Applied()), None, 30.0)
    paired.start(program.run(Applied(), 30.0))
    crash, fused = Applied(environment={"OMP_NUM_THREADS": "1"}), Applied(acts={"optimizer": "fused"})
    for setting in (crash, fused):
        paired.measure([Trial(setting)])
    assert program.ran == [Applied(), crash, fused, Applied()]


@pytest.mark.parametrize(("gain", "runs"), [(None, 12), (0.03, 14), (0.25, 20), (0.6, 14)])
def test_a_gain_that_chance_may_explain_keeps_no_time_for_a_long_proof(gain: float | None, runs: int) -> None:
    paired = Paired(Simulated(FakeClock(), factor), Trial(Applied()), None, 30.0)
    paired.runs = [Run("done", 5.0, [100.0 + 10 * (number % 2)]) for number in range(6)]
    search, budget = Search([], {}, None), Budget(600.0, 0.0, FakeClock())
    exploration = Exploration(search, paired, Lanes([paired]), budget, print, lambda: None, print)
    known = Measured({}, [] if gain is None else [math.log(1 - gain)], last_s=5.0)
    assert exploration.proof_s(known) == runs * 5.0


@pytest.mark.parametrize(("left_s", "rounds"), [(200.0, 0), (280.0, 1), (420.0, 2)])
def test_settings_are_taken_out_only_if_time_for_the_proof_is_left(left_s: float, rounds: int) -> None:
    """As in a U-Net: runs of the compiled finalist take 20 s, its shortest proof 180 s."""
    program = Compiling(FakeClock(), factor)
    program.first_s = program.later_s = 20.0
    paired = Paired(program, Trial(Applied()), None, 60.0)
    paired.start(program.run(Applied(), 60.0))
    kinds = [knob for knob in catalogue() if knob.id in ("optimizer", "compile")]
    known = {knob.id: Prior(None, "unknown") for knob in kinds}
    search, budget = Search(kinds, known, None), Budget(left_s / 1.08, 0.0, program.clock)
    finalist = Measured({"optimizer": "fused", "compile": "whole"}, [-0.2, -0.2], last_s=20.0)
    before = len(program.ran)
    gains = ablate(search, paired, finalist, 180.0, budget, lambda _: None)
    assert set(gains.logs) == (set(finalist.choice) if rounds else set())
    alone = Applied(acts={"optimizer": "fused"})  # the rest
    assert program.ran[before:].count(alone) == rounds


def test_the_load_is_that_of_the_host_though_the_program_has_few_of_its_cores(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (8.0, 8.0, 8.0))
    monkeypatch.setattr("os.cpu_count", lambda: 32)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    result = run(Simulated(FakeClock(), factor), place, monkeypatch, budget_s=135.0, only=("loader",))
    assert result.load == 0.25 and not [note for note in result.notes if "busy" in note]


def test_a_short_budget_still_tries_settings(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(Simulated(FakeClock(), factor), place, monkeypatch, budget_s=135.0)
    assert len(result.tried) >= 2


def test_the_least_budget_proves_a_large_gain_that_is_tried_first(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_s = simulated.START_S + 2.5  # of 25 steps
    least = (tuning.LEAST_RUNS + 1) * run_s
    result = run(Simulated(FakeClock(), factor), place, monkeypatch, budget_s=least, only=("loader",))
    assert {setting.knob for setting in result.settings} == {"loader"}
    assert result.seconds <= 1.1 * least


def test_a_killed_search_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Simulated(FakeClock(), factor)

    def killed(setting: Applied) -> Any:
        if len(program.ran) == 20:
            raise KeyboardInterrupt
        return factor(setting)

    program.factor = killed
    with pytest.raises(KeyboardInterrupt):
        run(program, place, monkeypatch)
    spent_s, first = program.clock.ns / 1e9, len(program.ran)
    again = Simulated(FakeClock(), factor)
    result = run(again, place, monkeypatch)
    assert {setting.knob for setting in result.settings} == {"loader", "optimizer"}
    assert result.seconds == pytest.approx(spent_s + again.clock.ns / 1e9, rel=0.1)
    assert len(result.tried) > first // 2  # with the candidates of the first part
    assert {path.name for path in place.iterdir()} == {"train.py", "train.tune"}


def test_a_budget_that_cannot_prove_anything_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInputError, match="budget is too short"):
        run(Simulated(FakeClock(), factor), place, monkeypatch, budget_s=30)


def test_the_folder_of_another_search_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(Simulated(FakeClock(), lambda _: 1.0), place, monkeypatch, only=("garbage",))
    with pytest.raises(BadInputError, match="another command"):
        tune([*COMMAND, "--more"], Options(folder=place / "train.tune"))


def test_a_program_that_cannot_be_recorded_leaves_no_folder(place: Path) -> None:
    folder = place / "train.tune"
    with pytest.raises(BadInputError, match="status 3"):
        tune([sys.executable, "-c", "raise SystemExit(3)"], Options(folder=folder))
    assert not folder.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": ("loadr",)}, "'loadr' is not a knob"),
        ({"only": ("loader",), "without": ("loader",)}, "leave no knob"),
        ({"budget_s": 10.0}, "A budget of 10 s is too short"),
        ({"step_on": "sometimes"}, "step-on"),
        ({"lanes": ("0",)}, "this machine has none"),
        ({"lanes": ("0", "1"), "in_place": True}, "leave out --in-place"),
    ],
)
def test_wrong_options_are_refused_before_the_program_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr("fathom.tuner.options.inventory", lambda: {"gpus": []})
    Path("train.py").write_text("open('ran', 'w')")
    with pytest.raises(BadInputError, match=message):
        tune(COMMAND, Options(**options))
    assert [path.name for path in place.iterdir()] == ["train.py"]


def test_a_finished_search_is_not_run_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(Simulated(FakeClock(), lambda _: 1.0), place, monkeypatch, only=("garbage",))
    again = Simulated(FakeClock(), lambda _: 1.0)
    with pytest.raises(BadInputError, match="above 700s to go on"):
        run(again, place, monkeypatch, only=("garbage",))
    assert not again.ran


def test_a_program_too_slow_for_the_budget_gets_one_that_would_do(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Simulated(FakeClock(), lambda _: Run("too slow", 175.0, why="planted"))
    with pytest.raises(BadInputError, match=r"ran no 20 steps in 175 s.*give --budget \d+m"):
        run(slow, place, monkeypatch, steps=20)
