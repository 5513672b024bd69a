"""A recorded program beside its plan: the GPT of the examples on an H200, and laws of kernels."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import fathom
from fathom.analysis.results import Device, LedgerRow
from fathom.cli.main import app
from fathom.errors import BadInputError
from fathom.machine import Ceiling
from fathom.planner.training import check_recorded, waves
from fathom.planner.training.checking import launch_shape
from fathom.planner.training.host_ops import HostOps
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


def test_waits_for_input_of_a_processor_are_no_idle_time_of_its_python():
    rows = [("ops", "aten::mm", 6.0), ("idle: python", "", 3.0), ("idle: input", "", 1.0)]
    ledger = [LedgerRow(entry, detail, ms, count=1.0) for entry, detail, ms in rows]
    device = Device(0, "cpu", [], 10.0, ledger, None)
    checked = check_recorded(SimpleNamespace(devices=[device], memory=None), {})
    assert {row.name: row.recorded_ms for row in checked.entries} == {"ops": 6, "idle": 3, "idle: input": 1}
    assert checked.entries[-1].error is None


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
    assert plan.layout.tp == 2 and plan.step.low < plan.step.value < plan.step.high


def host(name, value, unit, *series, threads=1):
    return Ceiling(
        id=name, value=value, unit=unit, low=value, high=value, samples=9, at={"threads": threads},
        series=list(series),
    )  # fmt: skip


def host_ops(threads=1, resident=0.0):
    sizes = ({"bytes": 2**20, "value": 80e9}, {"bytes": 2**23, "value": 20e9})
    shapes = ({"shape": [256] * 3, "value": 50e9}, {"shape": [2048] * 3, "value": 100e9})
    ceilings = [
        host("host.cache", 80e9, "B/s", *sizes, threads=threads),
        host("host.triad", 10e9, "B/s", {"bytes": 2**29, "value": 10e9}),
        host("host.dispatch", 1e-6, "s"),
        host("host.matmul.fp32", 100e9, "FLOP/s", *shapes),
    ]
    return HostOps(ceilings, resident)


def op(name, count, **work):
    return LedgerRow(entry="ops", detail=name, ms=1.0, count=count, **work)


def test_an_operator_on_a_processor_takes_its_traffic_where_it_fits():
    relu = {"bytes": 10 * 2**20}  # ten calls of a megabyte
    near, far = (host_ops(resident=size).planned(op("aten::relu", 10, **relu)) for size in (0, 2**29))
    calls = host_ops().planned(op("aten::view", 10))
    assert near - calls == pytest.approx(1e3 * 10 * 2**20 / 80e9)
    assert far - calls == pytest.approx(1e3 * 10 * 2**20 / 10e9)
    in_place = host_ops(resident=2**29).planned(op("aten::relu_", 10, **relu))
    assert (far - calls) / (in_place - calls) == pytest.approx(4 / 3)


def test_a_small_operator_runs_on_the_threads_that_torch_gives_it():
    small, large = (op("aten::relu", 1, bytes=4 * 32768 * n) for n in (1, 4))
    planner, idle = host_ops(threads=4), host_ops(threads=4).planned(op("aten::view", 1))
    # a quarter of the threads for a quarter of the work
    assert planner.planned(small) - idle == pytest.approx(planner.planned(large) - idle)


def test_random_numbers_are_drawn_on_one_thread():
    drawn = op("aten::bernoulli_", 1, bytes=4 * 32768 * 8)
    alone, shared = (host_ops(threads=threads).planned(drawn) for threads in (1, 4))
    call = host_ops().planned(op("aten::view", 1))
    # the ceiling is that of all threads, so one of four has a quarter of it
    assert shared - call == pytest.approx(4 * (alone - call))


def test_a_product_runs_at_the_rate_of_its_size():
    small, large = (2.0 * size**3 for size in (256, 2048))
    times = [
        host_ops().planned(op("aten::mm", 1, flops=flops, bytes=1.0, unit="matmul.fp32"))
        - host_ops().planned(op("aten::view", 1))
        for flops in (small, large, 8 * large)
    ]
    assert times == pytest.approx([1e3 * small / 50e9, 1e3 * large / 100e9, 1e3 * 8 * large / 100e9])


def test_a_machine_without_ceilings_of_the_host_is_named():
    assert HostOps([]).missing() == ["host.cache", "host.dispatch", "host.triad", "host.matmul.fp32"]
    assert HostOps([]).planned(op("aten::relu", 1, bytes=1e6)) == 0.0
