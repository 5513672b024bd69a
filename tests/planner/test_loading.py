"""Data loading and checkpoints of plans: by hand, by published runs, and by recordings with other workers."""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import fathom
from benchmarks.plan.validate_loading import compared
from fathom.cli.main import app
from fathom.errors import BadInputError
from fathom.planner import ASSUMED, Quantity
from fathom.planner.hardware import from_machine, hardware
from fathom.planner.training import Layouts, ask, derivation, plan_training
from fathom.planner.training.loading import Loader, loading_of, widened
from fathom.planner.training.results import Interval
from fathom.planner.training.saving import Saver, State, saving_of
from tests.support.paths import EXAMPLES

ONE_HOST = Layouts(8)
SLOW = {"gpus": 8, "batch": 256, "sample_time": "4 s", "workers": 4}


def exact(value: float, unit: str = "") -> Quantity:
    return Quantity(value, unit, ASSUMED, "the test")


def host(cores: float, storage: float):
    return hardware("h100").having(cores=exact(cores), storage=exact(storage, "B/s"))


def seconds(loader: Loader, samples: float, at: Layouts, cores: float, storage: float) -> float:
    return float(np.ravel(loader.seconds(host(cores, storage), samples, at))[0])


@pytest.mark.parametrize(
    ("workers", "cores", "storage", "expected"),
    [
        # 32 samples of 10 ms and 20 MB on each of 8 ranks; a read takes 20 MB / 100 GB/s = 0.2 ms
        (4, 112, 100e9, 32 * 0.0102 / 4),
        (100, 64, 1000e9, 8 * 32 * 0.010 / 64),  # cores are fewer than workers
        (16, 112, 2e9, 8 * 32 * 0.02 / 2),  # 256 × 20 MB through 2 GB/s
        (0, 112, 10e9, 32 * (0.010 + 8 * 0.002)),  # eight programs read at once, each by itself
    ],
)
def test_loading_takes_what_workers_cores_and_storage_allow(workers, cores, storage, expected):
    loader = Loader(exact(20e6, "B"), exact(0.010, "s"), exact(workers))
    assert seconds(loader, 32, ONE_HOST, cores, storage) == pytest.approx(expected)


def simulated(workers: int, cores: int, made: float, read: float, samples: int = 4000) -> float:
    """Return the samples a second of workers that read one at a time, and then make on the cores in turn."""
    free, disk, core = [0.0] * workers, 0.0, [0.0] * cores
    for _ in range(samples):
        begin = heapq.heappop(free)
        disk = max(disk, begin) + read
        end = max(disk, heapq.heappop(core)) + made
        heapq.heappush(core, end)
        heapq.heappush(free, end)
    return samples / max(free)


@pytest.mark.parametrize("workers", [1, 3, 8, 24, 64])
@pytest.mark.parametrize(("cores", "storage"), [(16, 1e12), (112, 4e9), (4, 10e9)])
def test_the_rates_of_loading_are_those_of_a_simulation(workers, cores, storage):
    loader = Loader(exact(20e6, "B"), exact(0.010, "s"), exact(workers))
    rank = Layouts(1)
    planned = 32 / seconds(loader, 32, rank, cores, storage)
    assert planned == pytest.approx(simulated(workers, cores, 0.010, 20e6 / storage), rel=0.03)


def test_ranks_of_a_tensor_parallel_group_share_a_loader():
    loader = Loader(exact(20e6, "B"), exact(0.010, "s"), exact(4))
    # two groups of four ranks on a host: 2 × 64 × 20 MB / 1 GB/s
    assert seconds(loader, 64, Layouts(2, 4), 112, 1e9) == pytest.approx(2.56)
    assert seconds(loader, 64, Layouts(1, 8, 4), 112, 1e9) == pytest.approx(1.28)


@pytest.mark.parametrize(
    ("gpus", "hosts", "size", "batch", "compute", "rate", "used"),
    [
        # mlcommons/storage_results_v1.0: samples/s and utilisation of simulated H100s, whose compute times
        # and sample sizes are those of mlcommons/storage, configs/dlio/workload
        (2, 1, 146_600_628, 7, 0.323, 39.77, 0.9235),  # HPE, Cray C500, U-Net3D
        (512, 32, 114_660, 400, 0.224, 843_065, 0.9252),  # DDN, AI400X2T, ResNet-50
    ],
)
def test_published_utilisation_is_planned_from_storage_and_sizes(
    gpus, hosts, size, batch, compute, rate, used
):
    there = host(1000, rate / hosts * size).having(host_gpus=exact(gpus / hosts))
    loader = Loader(exact(size, "B"), exact(1e-9, "s"), exact(64))
    waited = float(loader.wait(there, batch, Layouts(gpus), compute)[0])
    assert compute / (compute + waited) == pytest.approx(used, abs=0.01)


def test_what_is_too_small_is_named_with_what_keeps_up():
    loader = Loader(exact(20e6, "B"), exact(0.010, "s"), exact(4))
    loading = loading_of(loader, host(16, 1e9), np.array([32.0]), ONE_HOST, rest=0.1)
    assert loading.limit == "storage" and loading.wait_s == pytest.approx(5.12 - 0.1)
    assert loading.needed["storage"] == pytest.approx(51.2e9)
    assert loading.needed["cores"] == 26  # 256 × 10 ms / 100 ms = 25.6
    enough = host(loading.needed["cores"], loading.needed["storage"])
    more = replace(loader, workers=exact(loading.needed["workers"]))
    assert float(more.wait(enough, 32.0, ONE_HOST, 0.1)[0]) == 0


def test_intervals_of_loading_widen_that_of_the_step():
    loader = Loader(sample_s=Quantity(0.010, "s", ASSUMED, "the test", 0.008, 0.012), workers=exact(4))
    loading = loading_of(loader, host(112, 1e9), np.array([32.0]), ONE_HOST, rest=0.078)
    assert (loading.seconds.low, loading.seconds.high) == pytest.approx((0.064, 0.096))
    assert widened(Interval(0.078, 0.07, 0.085), loader, loading) == Interval(
        pytest.approx(0.08), pytest.approx(0.07), pytest.approx(0.096)
    )


def test_a_plan_waits_for_slow_loaders_and_says_how_many_keep_up():
    fed = plan_training(ask("llama3-8b", gpus=8, batch=256))
    plan = plan_training(ask("llama3-8b", **SLOW))
    row = next(row for row in plan.ledger if row.entry == "idle: input")
    # each loading rank makes 256 / dp samples of 4 s with four workers
    assert plan.step.value == pytest.approx(256 / plan.layout.dp * 4 / 4) and row.ms > 0
    assert sum(row.ms for row in plan.ledger) == pytest.approx(1e3 * plan.step.value)
    assert plan.step.value >= fed.step.value and plan.step.low <= plan.step.value <= plan.step.high
    assert any("would keep up" in note for note in plan.notes)
    assert any(row.name == "sample time" and row.moves > 0.1 for row in plan.assumptions)
    enough = ask("llama3-8b", **(SLOW | {"workers": 1000}), assume=["cores=100000"])
    assert plan_training(enough).step.value == pytest.approx(fed.step.value)
    question = ask("llama3-8b", **SLOW)
    lines = derivation(question, plan_training(question))
    assert any("by workers" in line for line in lines) and lines[-1].startswith("step: ")


def test_a_measured_disk_is_the_storage(tmp_path):
    machine = {
        "gpus": [{"name": "NVIDIA H100 80GB HBM3", "multiprocessors": 132}] * 4,
        "host": {"cpu": {"usable_cores": 48}},
        "ceilings": [
            {"id": f"disk.read.{kind}", "value": value, "unit": "B/s", "device": None,
             "low": value, "high": value, "samples": 9}
            for kind, value in (("sequential", 6e9), ("random", 2e9))
        ],
    }  # fmt: skip
    here = from_machine(machine)
    assert here["storage"].value == 6e9 and here["cores"].value == 48 and here["host_gpus"].value == 4
    assert here["storage"].provenance == "measured here" and not here.is_measured
    small, large = (Loader(sample_bytes=exact(size, "B")) for size in (1e5, 1e8))
    assert set(small.figures(here)) == {"sample bytes", "workers", "storage.random", "cores"}
    assert "storage" in large.figures(here)
    given = here.assuming(["storage=1 GB/s"])
    assert small.figures(given)["storage"].value == 1e9


@pytest.mark.parametrize("program", ["few_workers", "no_workers"])
def test_a_recording_is_planned_with_the_workers_of_another_one(program):
    more, fewer = compared(program)
    assert abs(more["error"]) < 0.15 and more["holds"]
    # 12 workers of a host make a sample more slowly than two: the interval says so
    assert fewer["holds"]


def test_a_recording_waits_as_recorded():
    sounding = fathom.open(EXAMPLES / "train_gpt-counters-h200.fathom.zip")
    from fathom.planner.training import plan_recorded

    plan = plan_recorded(sounding.on_more(1))
    (waits,) = (row.ms for row in plan.ledger if row.entry == "idle: input")
    ledger = sounding.examine().devices[0].ledger
    assert waits == pytest.approx(sum(row.ms for row in ledger if row.entry == "idle: input"), rel=0.05)
    slow = plan_recorded(sounding.on_more(8, sample_time="1 ms", workers=1))
    assert slow.step.value == pytest.approx(0.064)  # 64 samples of 1 ms


# Checkpoints


def state(parameters: float, gpus: int, hours: float | None = None) -> State:
    return State.of_model(parameters, True, gpus, 10.0, hours)


def test_checkpoints_are_written_by_every_host_or_by_one():
    system = hardware("h100").having(storage=exact(2e9, "B/s"))
    # 13.1 bytes of each of 15.6 billion parameters: 204 GB, as published for Nemotron-4 15B
    every = saving_of(Saver("sync", every=100), system, state(15.6e9, 64))
    assert every.bytes == pytest.approx(204e9, rel=0.01) and every.writers == 8
    assert every.stop_s.value == pytest.approx(204e9 / (8 * 2e9), rel=0.01)
    alone = saving_of(Saver("sync", every=100, one_writer=True), system, state(15.6e9, 64))
    gathered = every.bytes / system.fabric[-1].rate
    assert alone.stop_s.value == pytest.approx(every.bytes / 2e9 + gathered)
    hidden = saving_of(Saver("async", every=100), system, state(15.6e9, 64))
    assert hidden.stop_s.value == pytest.approx(1 + every.bytes / 64 / 20e9)
    assert hidden.write_s.value == pytest.approx(every.write_s.value)
    assert alone.goodput.value < every.goodput.value < hidden.goodput.value


def test_goodput_is_what_the_stops_leave_when_nothing_fails():
    system = hardware("h100").having(storage=exact(2e9, "B/s"))
    saved = saving_of(Saver("sync", every=100, mtbf_h=1e7), system, state(15.6e9, 64))
    assert saved.goodput.value == pytest.approx(1000 / (1000 + saved.stop_s.value), abs=0.001)
    assert saved.interval_s == 1000 and saved.share == pytest.approx(1 - saved.goodput.value, abs=0.001)


def test_the_goodput_of_llama_3_is_planned_from_its_storage():
    # arXiv:2407.21783: 16,384 H100s, 2 TB/s of sustained storage, more than 90 % effective training time
    system = hardware("h100").assuming([f"storage={2e12 / 2048:g} B/s"])
    saved = saving_of(Saver("async"), system, State.of_model(405e9, True, 16384, 10.0, 54 * 24 * 0.9))
    assert saved.storage == pytest.approx(2e12)
    assert 0.90 <= saved.goodput.value <= 0.95 and saved.goodput.low < 0.9
    assert saved.wall_hours == pytest.approx(54 * 24 * 0.9 / saved.goodput.value)


def test_a_plan_reports_its_checkpoints():
    plan = plan_training(
        ask("llama3-8b", gpus=64, batch=256, checkpoint="sync", checkpoint_every=2, one_writer=True)
    )
    assert plan.checkpoint.interval_s == pytest.approx(2 * plan.step.value)
    assert any("async checkpoints" in note for note in plan.notes)
    moved = {row.name: row.moves for row in plan.checkpoint.assumptions}
    assert moved["storage"] > 0.1 and set(moved) == {"storage", "hours between failures", "checkpoint bytes"}


# Options and files


def test_a_file_states_the_figures_and_options_replace_them(tmp_path):
    path = tmp_path / "loading.yaml"
    path.write_text(
        "sample_time: 8 ms\nsample_bytes: 110 kB\nworkers: 3\nstorage: 5 GB/s\ncheckpoint: sync\n"
    )
    question = ask("llama3-8b", gpus=8, batch=64, workload=path, workers=5)
    assert question.job.loader.sample_s.value == 0.008 and question.job.loader.sample_bytes.value == 110e3
    assert question.job.loader.workers.value == 5 and question.system["storage"].value == 5e9
    assert question.saver.kind == "sync"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"workers": 4}, "add --sample-time, like '8 ms'"),
        ({"sample_time": "8"}, "not a value in s; write one like '8 ms'"),
        ({"sample_time": "0 s"}, "not a value in s"),
        ({"sample_bytes": "8 ms"}, "not a value in B; write one like '110 kB'"),
        ({"storage": "5 GB", "checkpoint": "sync"}, "not a value in B/s"),
        ({"storage": "5 GB/s"}, "add --checkpoint, or --sample-bytes"),
        ({"mtbf": 5.0}, "add --checkpoint async"),
        ({"sample_time": "8 ms", "workers": -1}, "give an integer from 0"),
        ({"checkpoint": "hourly"}, "choose one of sync, async, memory"),
        ({"checkpoint_every": 0}, "give an integer from 1"),
        ({"checkpoint": "memory", "one_writer": True}, "leave --one-writer out"),
        ({"checkpoint": "sync", "mtbf": 0.0}, "hours between failures above 0"),
        ({"checkpoint": "sync", "mtbf": 0.01}, "makes no progress"),
        ({"workload": "missing.yaml"}, "missing.yaml"),
        ({"assume": ["cores=0"]}, "cores is 0"),
    ],
)
def test_impossible_figures_are_answered_in_one_sentence(asked, words):
    with pytest.raises(BadInputError, match=words) as error:
        plan_training(ask("llama3-8b", gpus=8, batch=64, **asked))
    assert str(error.value).count(". ") == 0


def test_unknown_figures_of_a_file_are_named(tmp_path):
    path = tmp_path / "loading.yaml"
    path.write_text("sample_tim: 8 ms\n")
    with pytest.raises(BadInputError, match="the nearest is sample_time"):
        ask("llama3-8b", gpus=8, batch=64, workload=path)


def test_the_command_prints_loading_and_checkpoints(tmp_path):
    options = ["--gpus", "8", "--batch", "64", "--sample-time", "900 ms", "--workers", "1"]
    options += ["--checkpoint", "async", "--html", str(tmp_path / "plan.html")]
    result = CliRunner().invoke(app, ["plan", "train", "llama3-8b", *options])
    assert result.exit_code == 0, result.output
    assert "limited by workers" in result.output and "goodput" in result.output
    assert (
        "hours between failures"
        in CliRunner().invoke(app, ["plan", "train", "llama3-8b", *options, "--all"]).output
    )
    page = (tmp_path / "plan.html").read_text()
    assert "goodput" in page and "idle: input" in page and "would keep up" in page
