"""Jobs in which a launcher starts one Fathom per rank: parts, their common steps, merging, dead ranks."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from fathom.errors import BadInputError
from fathom.probe import Task, task
from fathom.recorder import choose_destination
from fathom.sounding import collect, download, merge, open_store, upload
from tests.sounding.test_merging import node
from tests.support.running import environment, fathom_command, run_fathom

SRUN = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "7", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}
TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}

PROGRAM = """
import os, signal, sys, time, torch, torch.distributed as dist
rank = int(os.environ["SLURM_PROCID"])
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(int(sys.argv[2])):
    if rank == 1 and step == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)  # the ranks learn of each other's bursts some steps ahead
dist.barrier()
time.sleep(0.5)  # as in tests/programs/ranks.py: gloo's threads let go of the last all-reduce
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        (TORCHRUN, Task(5, 8, 1, 4)),
        (OPEN_MPI, Task(1, 4)),
        ({**OPEN_MPI, **TORCHRUN}, Task(5, 8, 1, 4)),
        ({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "2(x2),3"}, Task(3, 7, 1, 2)),
        ({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "2(x2),3", "SLURM_NODEID": "2"}, Task(3, 7, 1, 3)),
        (
            {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"},
            Task(0, 2, 0, 2),
        ),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "7"}, None),  # a batch script
        ({"RANK": "8", "WORLD_SIZE": "8"}, None),
        ({"RANK": "x", "WORLD_SIZE": "8"}, None),
        ({}, None),
    ],
)
def test_launchers_say_which_task_a_process_is(variables: dict[str, str], place: Task | None) -> None:
    assert task(variables) == place


def test_each_task_of_a_job_records_a_part_of_one_directory(tmp_path: Path) -> None:
    command = ["python", "train.py"]
    alone = choose_destination(str(tmp_path / "a.fathom"), command, {"RANK": "0", "WORLD_SIZE": "1"})
    assert alone.folder == tmp_path / "a.fathom" and alone.task is None and alone.schedule is None
    left, right = (
        choose_destination(str(tmp_path / "job"), command, {**TORCHRUN, "RANK": rank}) for rank in "56"
    )
    assert left.folder == tmp_path / "job" / "part-5.fathom" and left.schedule == right.schedule
    assert right.folder == tmp_path / "job" / "part-6.fathom"
    again = choose_destination(None, command, {**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "2"})
    assert again.folder.name == "part-5-restart-2.fathom" and again.folder.parent.name.startswith("train-")
    nodes = choose_destination(None, command, {**SRUN, "SLURM_JOB_ID": "41", "SLURM_STEP_ID": "2"})
    assert nodes.folder == Path("train-41.2/part-3.fathom") and nodes.schedule is None


def tasks(folder: Path, *arguments: object) -> list[subprocess.CompletedProcess[str]]:
    """Run PROGRAM with one Fathom per rank, as srun would."""
    (folder / "train.py").write_text(PROGRAM)
    meeting = folder / "meeting"
    meeting.unlink(missing_ok=True)
    words = ("run", "-o", "job", "--", "train.py", meeting, *arguments)
    running = [
        subprocess.Popen(
            fathom_command(*words),
            cwd=folder,
            env=environment(
                SLURM_PROCID=str(rank),
                SLURM_LOCALID=str(rank),
                SLURM_STEP_NUM_TASKS="2",
                SLURM_STEP_TASKS_PER_NODE="2",
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in running]
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *texts)
        for process, texts in zip(running, outputs, strict=True)
    ]


@pytest.mark.programs
def test_one_fathom_per_rank_records_the_same_steps_and_merges(tmp_path: Path) -> None:
    ran = tasks(tmp_path, 150, -1)
    assert [each.returncode for each in ran] == [0, 0], [each.stderr for each in ran]
    assert "fathom merge job -o train.fathom" in ran[0].stderr and not ran[1].stderr
    assert sorted(path.name for path in (tmp_path / "job").iterdir()) == ["part-0.fathom", "part-1.fathom"]
    refused = run_fathom("report", "job", cwd=tmp_path)
    assert refused.returncode and "fathom merge job" in refused.stderr
    assert run_fathom("merge", "job", "-o", "train.fathom", cwd=tmp_path).returncode == 0
    store = open_store(tmp_path / "train.fathom")
    assert store.ranks == [0, 1] and not store.manifest.problems
    steps = store.table("steps").collect()
    of_ranks = [set(steps.filter(rank=rank, phase="timeline")["step"]) for rank in (0, 1)]
    assert of_ranks[0] and of_ranks[0] == of_ranks[1]


@pytest.mark.programs
def test_a_killed_rank_leaves_the_others_readable_and_is_named(tmp_path: Path) -> None:
    ran = tasks(tmp_path, 150, 60)
    assert ran[1].returncode == -signal.SIGKILL and ran[0].returncode
    merged = run_fathom("merge", "job", "-o", "train.fathom", cwd=tmp_path)
    assert merged.returncode == 0 and "Rank 1 was killed" in merged.stdout, merged.stdout + merged.stderr
    assert "Rank 0 ended with the exception" in merged.stdout
    report = run_fathom("report", "train.fathom", cwd=tmp_path)
    assert report.returncode == 0 and "Rank 1 was killed" in report.stdout


def test_parts_without_steps_are_named_and_restarts_replace_attempts(tmp_path: Path) -> None:
    job = tmp_path / "job"
    node(job / "part-0.fathom", 0)
    node(job / "part-2.fathom", 2, begun_s=100)
    node(job / "part-2-restart-1.fathom", 2, begun_s=101)
    (job / "part-3.fathom" / "raw").mkdir(parents=True)
    (job / "part-1.fathom").mkdir()
    (job / "part-1.fathom" / "manifest.json").write_text("{")
    parts = collect([job])
    assert parts.missing == {
        1: "left a damaged recording",
        3: "recorded no step (its program: killed)",
    }
    store = merge(parts.stores, tmp_path / "job.fathom", reasons=parts.missing)
    assert store.table("steps", 2).collect()["mark_ns"][0] == 101_000_000_000
    (problem,) = store.manifest.problems
    assert "Missing: 1, 3 (rank 1 left a damaged recording; rank 3 recorded no step" in problem.text


def test_parts_travel_through_any_file_system(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    url = f"memory://bucket-{tmp_path.name}/job"
    for rank in (0, 1):
        place = choose_destination(url, ["train.py"], {**TORCHRUN, "RANK": str(rank)})
        node(place.folder, rank, world=2)
        said: list[str] = []
        place.deliver(["train.py"], said.append)
        assert said[0] == f"the recording is {url}/part-{rank}.fathom.zip" and not place.folder.exists()
    store = merge(collect([url]).stores, tmp_path / "job.fathom")
    assert store.ranks == [0, 1] and not store.manifest.problems
    single = merge(collect([f"{url}/part-1.fathom.zip"]).stores, tmp_path / "one.fathom")
    assert single.ranks == [1]


def test_raw_records_travel_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    raw = tmp_path / "part-0.fathom" / "raw"
    raw.mkdir(parents=True)
    (raw / "launch.json").write_text(json.dumps({"command": ["a"]}))
    url = f"file://{tmp_path}/elsewhere"
    assert upload(raw.parent, url) == f"{url}/part-0.fathom"
    copied = download(url) / "part-0.fathom" / "raw" / "launch.json"
    assert json.loads(copied.read_text()) == {"command": ["a"]}


def test_a_url_that_cannot_be_used_is_an_error_of_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(BadInputError, match="nowhere"):
        collect(["nowhere://bucket/job"])
    with pytest.raises(BadInputError, match="could not be read"):
        collect([f"file://{tmp_path}/missing"])
    (tmp_path / "job" / "part-0.fathom" / "raw").mkdir(parents=True)
    with pytest.raises(
        BadInputError, match="None of the job's parts contains steps: part 0 recorded no step"
    ):
        collect([tmp_path / "job"])
