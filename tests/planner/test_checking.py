"""A recorded program beside its plan: the GPT of the examples on an H200, and laws of kernels."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import fathom
from fathom.cli.main import app
from fathom.errors import BadInputError
from fathom.planner.training import check_recorded, waves
from fathom.planner.training.checking import launch_shape
from tests.support.paths import EXAMPLES

GPT = EXAMPLES / "train_gpt-counters-h200.fathom.zip"


@pytest.fixture(scope="module")
def gpt():
    sounding = fathom.open(GPT)
    return check_recorded(sounding.examine(), sounding.store.machine), sounding.examine()


def test_the_entries_are_the_ledgers(gpt):
    checked, examination = gpt
    assert sum(row.recorded_ms for row in checked.entries) == pytest.approx(examination.step.clean_ms)
    assert {row.name for row in checked.entries} == {"compute", "copy", "idle"}
    assert checked.notes == []


def test_the_gpt_takes_about_as_long_as_planned(gpt):
    checked, _ = gpt
    planned, recorded = (sum(getattr(r, k) for r in checked.entries) for k in ("planned_ms", "recorded_ms"))
    assert abs(planned / recorded - 1) < 0.15
    assert all(abs(row.error) < 0.25 for row in checked.entries if row.recorded_ms > 0.1)


def test_a_kernel_of_eight_blocks_gets_the_bandwidth_of_eight_multiprocessors(gpt):
    row = next(row for row in gpt[0].kernels if row.name.startswith("GammaBetaBackward"))
    assert abs(row.error) < 0.05


def test_waves_count_the_blocks_of_all_multiprocessors():
    assert launch_shape("copy<float> 16384x2x1·128x1x1") == (32768, 128)
    assert waves("copy<float> 4224x1x1·128x1x1", 132) == 2.0  # 16 blocks of 128 threads fit
    assert waves("copy<float> 132x1x1·1024x1x1", 132) == 0.5
    assert waves("no shape", 132) == 0.0


def test_a_recording_without_a_ledger_is_refused(gpt):
    import msgspec

    with pytest.raises(BadInputError, match="no ledger"):
        check_recorded(msgspec.structs.replace(gpt[1], devices=[]), {})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["check", str(GPT)], "than the recorded step"),
        (["train", "llama3-8b", "--gpus", "8", "--batch", "64", "--all"], "weak scaling"),
        (["train", "llama3-8b", "--gpus", "8", "--batch", "64", "--explain"], "micro-batch: "),
        (["models"], "deepseek-v3"),
        (["systems"], "(announced)"),
    ],
)
def test_the_commands_print(words, expected):
    result = CliRunner().invoke(app, ["plan", *words])
    assert result.exit_code == 0 and expected in result.output, result.output


def test_a_plan_is_written_as_page_and_launch_files(tmp_path):
    words = ["--html", str(tmp_path / "plan.html"), "--launch", str(tmp_path / "launch"), "--json"]
    result = CliRunner().invoke(app, ["plan", "train", "llama3-8b", "--gpus", "8", "--batch", "64", *words])
    assert result.exit_code == 0, result.output
    assert "Which assumption moves the step most" in (tmp_path / "plan.html").read_text()
    assert {path.name for path in (tmp_path / "launch").iterdir()} == {
        "torchrun.sh",
        "torchtitan.toml",
        "megatron.sh",
    }


def test_the_api_plans_too():
    plan = fathom.plan("llama3-8b", "h100", gpus=8, batch=64, tp=2)
    assert plan.layout["tp"] == 2 and plan.step.low < plan.step.value < plan.step.high
