"""Ceilings of a machine without a GPU: host, loader, disk, collectives over gloo; the command."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import torch

from fathom.gauges import collective_worker, collectives, disk, gpu, host, loader
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import NotHereError
from tests.support.paths import ROOT
from tests.support.running import PYTHON, environment, run_fathom

pytestmark = pytest.mark.programs

PACE = 0.01


@pytest.fixture
def modest(monkeypatch):
    monkeypatch.setattr(host, "SMALLEST", 2**20)
    monkeypatch.setattr(host, "LARGEST", 2**21)
    monkeypatch.setattr(host, "SIZES", (128,))
    monkeypatch.setattr(loader, "SIZES", (2**20,))
    monkeypatch.setattr(loader, "WORKERS", (1,))
    monkeypatch.setattr(disk, "filesystem", lambda place: None)  # tests may lie in memory themselves


@pytest.mark.parametrize("name", sorted(host.GAUGES))
def test_the_host_has_its_ceilings(modest, name):
    items = host.GAUGES[name](GaugeJob(ids=(name,), pace=PACE))
    assert items.id == name
    assert 1e-8 < items.value < 1e-2 if items.unit == "s" else 1e6 < items.value < 1e16
    assert items.at["threads"] >= 1


def test_small_products_run_on_all_threads(modest):
    rows = host.GAUGES["host.matmul.fp32"](GaugeJob(ids=(), pace=PACE)).series
    small = [row["threads"] for row in rows if row["shape"][0] == min(host.SMALL_SIZES)]
    assert small == [host.cores()]


def test_arrays_are_random(modest):
    values = host._array(2**20)
    assert values.numel() == 2**18 and values.std() > 0.2
    assert values.min() >= 0 and values.max() < 1


def test_a_loaders_workers_hand_over_their_batches(modest):
    items = loader.GAUGES["host.loader"](GaugeJob(ids=("host.loader",), pace=PACE))
    assert items.value > 1e6 and items.at == {"bytes": 2**20, "workers": 1}


@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_workers_leave_the_receiver_a_core(cores):
    assert all(count < cores or count == 1 for count in loader.workers(cores))


@pytest.mark.parametrize("kind", ["sequential", "random"])
def test_the_disk_is_read_and_left_as_it_was(modest, tmp_path, kind):
    items = disk.GAUGES[f"disk.read.{kind}"](GaugeJob(ids=(), data=str(tmp_path), pace=PACE))
    assert items.value > 1e5 and len(items.series) == len(disk.RANDOM)
    assert kind == "sequential" or items.at["block_bytes"] == 128 * disk.KIB
    assert list(tmp_path.iterdir()) == []


def test_reads_bring_the_files_own_bytes(tmp_path):
    path = tmp_path / "file"
    content = os.urandom(4 * disk.MIB)
    path.write_bytes(content)
    file = disk.File(path, len(content), disk.takes_direct(path))
    with disk.Readers(file, disk.MIB, 1) as readers:
        for block in (3, 0, 2):
            readers.read([block * disk.MIB])
            assert readers._buffers[0][:] == content[block * disk.MIB : (block + 1) * disk.MIB]
        with pytest.raises(NotHereError, match="too few bytes"):
            readers.read([4 * disk.MIB])


def test_a_refusal_of_direct_reads_is_flagged(monkeypatch, modest, tmp_path):
    monkeypatch.setattr(disk, "takes_direct", lambda path: False)
    items = disk.GAUGES["disk.read.sequential"](GaugeJob(ids=(), data=str(tmp_path), pace=PACE))
    assert disk.CACHED in items.flags


def test_a_full_disk_is_a_reason_and_leaves_nothing(monkeypatch, modest, tmp_path):
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk.os, "write", full)
    with pytest.raises(NotHereError, match="No space left"):
        disk.GAUGES["disk.read.random"](GaugeJob(ids=(), data=str(tmp_path), pace=PACE))
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_in_memory_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(disk, "filesystem", lambda place: {"type": "tmpfs"})
    with pytest.raises(NotHereError, match="is in memory"):
        disk.GAUGES["disk.read.random"](GaugeJob(ids=(), data=str(tmp_path), pace=PACE))


def test_a_missing_folder_is_a_reason(tmp_path):
    with pytest.raises(NotHereError, match="not a folder"):
        disk.GAUGES["disk.read.random"](GaugeJob(ids=(), data=str(tmp_path / "none"), pace=PACE))


def test_without_a_gpu_there_is_no_gpu():
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(NotHereError, match="no CUDA device"):
        gpu.MeasuredGpu()


def test_collectives_do_what_their_names_say(tmp_path):
    """Two ranks; each starts with 0 to 7, the second with 100 more."""
    ranks = 2
    command = [PYTHON, "-m", "tests.support.gauges_rank"]
    running = [
        subprocess.Popen(
            [*command, str(rank), str(ranks), str(tmp_path / "meeting")],
            stdout=subprocess.PIPE,
            env=environment(PYTHONPATH=f"{ROOT}{os.pathsep}{ROOT / 'src'}"),
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate(timeout=120)[0].splitlines() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    first, second = ([json.loads(line) for line in output] for output in outputs)
    low, high = [float(i) for i in range(8)], [100.0 + i for i in range(8)]
    both = [a + b for a, b in zip(low, high, strict=True)]
    expected = {
        "all_reduce": (both, both),
        "all_gather": (low[:4] + high[:4],) * 2,
        "reduce_scatter": (both[:4] + [0.0] * 4, both[4:] + [0.0] * 4),
        "all_to_all": (low[:4] + high[:4], low[4:] + high[4:]),
        "send_recv": (high, low),
    }
    assert {row["kind"]: row["result"] for row in first} == {k: v[0] for k, v in expected.items()}
    assert {row["kind"]: row["result"] for row in second} == {k: v[1] for k, v in expected.items()}
    assert all(row["bytes"] == 4096 and min(row["seconds"]) > 0 for row in first)


def test_rows_of_ranks_become_ceilings(monkeypatch, tmp_path):
    def run(ranks: int, task: dict) -> str:
        for kind in task["kinds"]:
            for size, seconds in ((2**20, 1e-4), (2**30, 5e-3)):
                row = {"kind": kind, "bytes": size, "seconds": [seconds] * 3, "repetitions": 10}
                collective_worker.append(task["output"], row)
        return ""

    monkeypatch.setattr(collectives, "_run", run)
    job = GaugeJob(ids=("collective.all_reduce", "collective.send_recv"), devices=(0, 1, 2, 3))
    items = collectives.GAUGES["collective.all_reduce"](job)
    assert items.value == pytest.approx(2**30 / 5e-3 * 1.5)
    assert items.at == {"bytes": 2**30, "ranks": 4}
    assert items.series[0]["seconds"] == 1e-4
    with pytest.raises(NotHereError, match="did not finish"):
        collectives.GAUGES["collective.all_gather"](job)


def test_torchrun_without_a_result_says_why(monkeypatch):
    monkeypatch.setattr(collectives, "WORKER", "fathom.no_such_worker")
    job = GaugeJob(ids=("collective.all_reduce",), devices=(0, 1))
    with pytest.raises(NotHereError, match=r"torchrun returned no result: .*no_such_worker"):
        collectives.GAUGES["collective.all_reduce"](job)


def test_one_gpu_has_no_collectives():
    with pytest.raises(NotHereError, match="one GPU"):
        collectives.GAUGES["collective.all_reduce"](GaugeJob(ids=("collective.all_reduce",), devices=(0,)))


def test_the_command_measures_and_remembers(tmp_path):
    words = ["machine", "measure", "--only", "host.read,matmul.bf16", "--json"]
    done = run_fathom(*words, cwd=tmp_path, FATHOM_HOME=str(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert [(c["id"], c["unit"], c["device"]) for c in printed["ceilings"]] == [("host.read", "B/s", None)]
    assert {m["id"] for m in printed["missing"]} == {"matmul.bf16", "matmul.bf16.sustained"}
    (kept,) = (tmp_path / "machines").glob("*.json")
    assert json.loads(kept.read_text()) == printed
    assert str(kept) in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "nonsense"], "no ceiling is called nonsense"),
        (["--gpu", "99"], "there is no GPU 99"),
        (["--data", "nowhere"], "nowhere is not a folder"),
    ],
)
def test_the_command_refuses_impossible_requests(tmp_path, words, said):
    done = run_fathom("machine", "measure", *words, cwd=tmp_path, FATHOM_HOME=str(tmp_path))
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""
