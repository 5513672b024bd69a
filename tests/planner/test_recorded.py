"""A recording as the workload of a plan: the GPT of the examples, on more GPUs and on other chips."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import fathom
from fathom.cli.main import app
from fathom.errors import BadInputError
from fathom.planner.hardware import hardware
from fathom.planner.training import plan_recorded, recorded_derivation, write_launch_files
from faults.kept import take
from tests.support.paths import EXAMPLES, RECORDINGS

GPT = EXAMPLES / "train_gpt-counters-h200.fathom.zip"


@pytest.fixture(scope="module")
def gpt():
    return fathom.open(GPT)


def test_one_gpu_of_the_recorded_machine_takes_the_recorded_step(gpt):
    plan = plan_recorded(gpt.on_more(1, parameters=4.8e6))
    assert plan.step.value == pytest.approx(gpt.step.clean_ms / 1e3, rel=0.01)
    assert sum(row.ms for row in plan.ledger) == pytest.approx(1e3 * plan.step.value)
    assert plan.notes == [] and plan.rate_unit == "samples/s"
    assert plan.tokens_per_s == pytest.approx(64 / plan.step.value, rel=0.01)


def test_profiling_overhead_in_device_work_is_no_work(tmp_path):
    # beside another process, the profiled kernels take 1.2 times as long as in the clean step
    sounding = fathom.open(take(RECORDINGS, "device.other_process.faulty.2", tmp_path))
    assert any(row.ms < 0 for row in sounding.examine().devices[0].ledger)
    plan = plan_recorded(sounding.on_more(1, parameters=1e6))
    assert sum(row.ms for row in plan.ledger) == pytest.approx(1e3 * plan.step.value)
    assert plan.step.value == pytest.approx(sounding.step.clean_ms / 1e3, rel=0.01)


def test_another_chip_speeds_kernels_up_by_its_peaks_and_leaves_the_host(gpt):
    here, there = plan_recorded(gpt.on_more(1)), plan_recorded(gpt.on_more(1, "b200"))
    ratio = hardware("h200")["hbm"].value / hardware("b200")["hbm"].value
    before, after = ({row.detail: row.ms for row in plan.ledger} for plan in (here, there))
    assert after["other kernels"] / before["other kernels"] == pytest.approx(ratio, rel=0.02)
    # the host cannot launch faster, so the device waits for longer
    assert there.step.value > ratio * here.step.value and after["host and gaps"] > before["host and gaps"]
    assert any("extrapolation" in note for note in there.notes)
    assert there.step.high / there.step.low > here.step.high / here.step.low


def test_sharded_states_need_less_memory_and_more_communication(gpt):
    asked = {"parameters": 1e9, "memory": "1000 GB"}
    plans = [plan_recorded(gpt.on_more(64, sharding=kind, **asked)) for kind in ("ddp", "zero1", "fsdp")]
    peaks = [plan.memory.value for plan in plans]
    assert peaks == sorted(peaks, reverse=True)
    # DDP reduces 4 GB once; FSDP gathers them twice as well
    moved = [next(row.ms for row in plan.ledger if row.detail == "data parallel") for plan in plans]
    assert moved[2] > moved[0]
    # arXiv:1910.02054: gradients and Adam's fp32 states of the ranks shrink with their number
    assert plans[2].memory_parts["optimizer"] == pytest.approx(8e9 / 64)


def test_a_larger_batch_repeats_the_recorded_step(gpt):
    once, thrice = plan_recorded(gpt.on_more(8)), plan_recorded(gpt.on_more(8, batch=3 * 8 * 64))
    assert thrice.step.value == pytest.approx(3 * once.step.value, rel=0.02)
    assert [option.gpus for option in thrice.front] == [8, 4, 2, 1]
    sent, *rest = sorted(thrice.ledger, key=lambda row: row.detail != "data parallel")
    assert sent.provenance == "calibrated" and {row.provenance for row in rest} == {"measured here"}
    for row in thrice.ledger:
        assert row.low_ms < row.ms < row.high_ms
    step = thrice.front[0].figures["step_s"]
    assert step.interval == pytest.approx((thrice.step.low, thrice.step.high))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"batch": 100}, "the nearest that works is --batch 512"),
        ({"tp": 2}, "leave tp out"),
        ({"tokens": 1e9}, "leave --tokens out"),
        ({"memory": "1 GB"}, "does not fit"),
        ({"sharding": "zero2"}, "choose one of ddp"),
        ({"shard": 3}, "the nearest that works is --sharding fsdp --shard 4"),
    ],
)
def test_what_a_recording_does_not_tell_is_asked_for(gpt, asked, words):
    with pytest.raises(BadInputError, match=words) as error:
        plan_recorded(gpt.on_more(8, **asked))
    assert str(error.value).count(". ") == 0


def test_the_command_plans_a_sounding(gpt, tmp_path):
    result = CliRunner().invoke(
        app, ["plan", "train", str(GPT), "--gpus", "8", "--html", str(tmp_path / "p.html")]
    )
    assert result.exit_code == 0, result.output
    assert "as recorded" in result.output and "At most" in result.output
    job = gpt.on_more(8, "b200")
    plan = plan_recorded(job)
    assert float(recorded_derivation(job, plan)[-1].split()[1]) == pytest.approx(
        1e3 * plan.step.value, rel=1e-3
    )
    with pytest.raises(BadInputError, match="need a model"):
        write_launch_files(plan, tmp_path)
