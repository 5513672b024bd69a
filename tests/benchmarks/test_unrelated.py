"""Programs with planted faults that no rule was built on: labels, forms that run, the score."""

from __future__ import annotations

import importlib.util
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import modules
from benchmarks.unrelated import score
from benchmarks.unrelated.planted import HERE, NONE, Planted, planted
from faults import record
from faults.labels import GROUPS, kinds
from faults.score import NOTHING, Case
from tests.faults.test_faults_suite import options
from tests.support import warm
from tests.support.running import environment

FAULTY = [program for program in planted() if program.fault.kind]
PROGRAMS = ("diffusion", "ranking", "speech")
OTHER_NUMBERS = {"heads", "layout", "loss", "vocabulary", "width"}  # faults that change what is computed
EVERY_FORM = """
import runpy, sys, torch
torch.set_num_threads(1)
file, *faults = sys.argv[1:]
sys.path.insert(0, file.rpartition("/")[0])
for fault in faults:
    sys.argv = [file, "--small", "--device", "cpu", "--steps", "2", "--fault", fault]
    runpy.run_path(file, run_name="__main__")
"""


# labels


@pytest.mark.parametrize("program", FAULTY, ids=lambda item: item.id)
def test_labels_are_consistent(program: Planted):
    fault = program.fault
    assert {fault.kind, *fault.allowed} <= set(kinds()) and fault.kind not in fault.allowed
    assert fault.expected == [fault.kind] and fault.why
    assert 0.1 <= fault.share[0] <= 0.6 and fault.severity == [2]


def test_faults_differ_and_are_spread():
    assert {program.group for program in planted()} == set(PROGRAMS)
    assert len({program.fault.kind for program in FAULTY}) == len(FAULTY) == 18
    assert {str(program.fault.kind).partition("-")[0] for program in FAULTY} == set(GROUPS) - {
        "communication",
        "device",
        "framework",
    }
    for name in PROGRAMS:
        tuned, *_ = (program for program in planted() if program.group == name)
        assert (tuned.name, tuned.fault.kind, tuned.forms) == (NONE, None, ("mended",))


# programs


@pytest.mark.programs
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_form_runs_on_a_processor_and_learns_the_same(name: str, tmp_path: Path):
    needed = ("torch", "PIL") if name == "diffusion" else ("torch",)
    if missing := [item for item in needed if not importlib.util.find_spec(item)]:
        pytest.skip(f"needs {missing[0]}")
    forms = [program.name for program in planted() if program.group == name]
    (tmp_path / "every_form.py").write_text(EVERY_FORM)
    words = [tmp_path / "every_form.py", HERE / f"{name}.py", *forms]
    done = warm.run(words, environment(), timeout=240)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [item["fault"] for item in said] == forms
    assert all(math.isfinite(item["loss"]) and item["steps"] == 2 for item in said)
    losses = {item["fault"]: item["loss"] for item in said}
    same = set(forms) - OTHER_NUMBERS
    assert {form: losses[form] for form in same} == pytest.approx(dict.fromkeys(same, losses[NONE]), rel=1e-3)


def test_runs_are_those_of_the_labels(tmp_path):
    said = options(tmp_path, only=["speech"], group=None)
    runs = list(record.chosen(options(tmp_path), planted))
    wanted = {"diffusion.none.mended.2", "diffusion.workers.faulty.2", "ranking.width.faulty.2"}
    assert wanted <= {run.name for run in runs}
    assert len(runs) == len(planted()) == 21 and not list(record.chosen(said, planted))
    workers = next(run for run in runs if run.name == "diffusion.workers.faulty.2")
    command = workers.command(tmp_path, said)
    words = command[command.index("--") + 1 :]
    assert words[1:4] == [str(HERE / "diffusion.py"), "--fault", "workers"]
    assert {run.program.family for run in runs} == set(PROGRAMS)


# score


def case(program: Planted, step_ms: float, *findings) -> Case:
    made = [dict(zip(("id", "gain_ms", "low_ms", "high_ms"), finding, strict=True)) for finding in findings]
    return Case(program, program.forms[0], 2, made, step_ms)


def test_each_fault_is_scored_against_its_programs_well_tuned_form():
    known = {program.id: program for program in planted()}
    cases = [
        case(known["speech/none"], 50.0, ("host-python", 4.0, 3.0, 5.0), ("host-logging", 1.0, 1.0, 1.0)),
        case(
            known["speech/wer"], 70.0, ("host-sync-copy", 22.0, 1.0, 30.0), ("host-python", 18.0, 15.0, 22.0)
        ),
        case(known["speech/mask"], 60.0, ("kernels-math-attention", 9.0, 8.0, 10.0)),
        case(known["diffusion/norm"], 60.0, ("kernels-unfused-norm", 9.0, 8.0, 10.0)),  # without its twin
    ]
    document = json.loads(json.dumps(score.score(cases)))
    rows = {fault["case"]: fault for fault in document["faults"]}
    wer, mask = rows["speech/wer"], rows["speech/mask"]
    assert (wer["first"], wer["rank"], wer["rank_strictly"], wer["realised_ms"]) == (
        "host-python",
        1,
        2,
        20.0,
    )
    assert (mask["first"], mask["rank"], mask["predicted_ms"]) == ("kernels-math-attention", None, None)
    assert "realised_ms" not in rows["diffusion/norm"] and rows["diffusion/norm"]["rank"] == 1
    assert document["accuracy"]["first"] == pytest.approx(2 / 3) and document["prediction"]["cases"] == 1
    assert document["prediction"]["error"] == pytest.approx(0.1) and document["prediction"]["coverage"] == 1
    assert [(item["case"], item["finding"]) for item in document["false"]] == [
        ("speech/none 2", "host-python")
    ]
    text = score.table(document)
    for word in (
        "speech/mask",
        "materialised-mask",
        "20.00",
        "false: speech/none 2: host-python",
        "first 0.67",
    ):
        assert word in text


def test_programs_that_were_seen_are_scored_separately():
    assert {program.group for program in planted() if program.seen} == {"diffusion", "speech"}
    known = {
        program.id: replace(program, seen="" if program.group == "speech" else program.seen)
        for program in planted()
    }
    cases = [
        case(known["speech/none"], 50.0),
        case(known["speech/loss"], 60.0, ("kernels-unfused-loss", 8.0, 6.0, 9.0)),
        case(known["ranking/none"], 30.0),
        case(known["ranking/width"], 50.0, ("numbers-odd-vocabulary", 20.0, 15.0, 25.0)),
        case(known["diffusion/none"], 40.0),
        case(known["diffusion/norm"], 60.0, ("kernels-unfused-norm", 10.0, 9.0, 25.0)),
    ]
    document = json.loads(json.dumps(score.score(cases)))
    values, seen = document["groups"]
    assert values["programs"] == {"speech": "", "ranking": ""} and list(seen["programs"]) == ["diffusion"]
    assert (values["accuracy"]["first"], seen["accuracy"]["first"]) == (0.5, 1)
    assert (values["prediction"]["cases"], values["prediction"]["error"]) == (1, pytest.approx(0.2))
    assert (values["prediction"]["coverage"], seen["prediction"]["coverage"]) == (0, 1)
    assert seen["prediction"]["error"] == pytest.approx(0.5)
    lines = score.table(document).splitlines()
    assert (
        "held out (speech, ranking): first 0.50, third 0.50, error 0.20, coverage 0.00, width 0.30" in lines
    )
    assert any(line.startswith("seen while rules were changed (diffusion): first 1.00") for line in lines)
    assert any(line.startswith("diffusion: seen 2026-11-22") for line in lines)
    assert lines[-1].startswith("all: first 0.67") and set(document) >= {
        "accuracy",
        "prediction",
        "false",
        "faults",
    }


def test_nothing_found_is_told_as_such():
    program = replace(FAULTY[0])
    said = score.score([case(program, 10.0)])
    assert said["faults"][0]["first"] == NOTHING and score.table(said)
    assert score.score([])["recordings"] == 0 and score.table(score.score([]))


def test_benchmarks_in_folders_are_run_too():
    assert modules() == {  # `python -m benchmarks` takes their names
        "compiling": "accuracy.compiling",
        "equal_sides": "referee.equal_sides",
        "findings": "accuracy.findings",
        "import_speed": "cost.import_speed",
        "lab": "referee.lab",
        "others": "plan.others",
        "planted": "tuning.planted",
        "search_speed": "plan.search_speed",
        "unrelated": "unrelated",
        "validate": "plan.validate",
        "validate_loading": "plan.validate_loading",
    }
