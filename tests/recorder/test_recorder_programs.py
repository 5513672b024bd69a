"""Real programs on torch, recorded from outside and turned into soundings."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from fathom.api import open as open_sounding
from tests.support.running import PYTHON, record, run_fathom, start_fathom

pytestmark = [pytest.mark.programs]
pytest.importorskip("torch")

# By hand, for an optimizer imports Dynamo, which takes as long again as torch.
TRAIN = """
import sys, torch
model = torch.nn.Linear(32, 32)
for i in range(STEPS):
    model(torch.randn(8, 32)).sum().backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight -= 0.1 * weight.grad
    model.zero_grad()
print("trained", len(sys.argv), flush=True)
"""
OPTIMIZED = """
import torch
model = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(STEPS):
    model(torch.randn(8, 32)).sum().backward()
    optimizer.step()
"""
PLAIN = """
import sys, time, fathom
for i in range(STEPS):
    time.sleep(0.002)
    fathom.step()
print("trained", len(sys.argv), flush=True)
"""
DISTRIBUTED = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(60):
    model(torch.randn(8, 32)).sum().backward()
    optimizer.step()
dist.barrier()  # see tests/programs/ranks.py
time.sleep(0.5)
dist.destroy_process_group()
"""
OUT = ("run", "--quiet", "-o", "out.fathom", "--settle", 4)


def program(folder, name="train.py", steps=60, text=TRAIN):
    (folder / name).write_text(text.replace("STEPS", str(steps)))


def steps_of(folder):
    """Recorded steps by rank."""
    counts = open_sounding(folder / "out.fathom").sql(
        "SELECT rank, count(*) AS n FROM steps WHERE parent IS NULL GROUP BY rank ORDER BY rank"
    )
    return dict(counts.rows())


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (TRAIN, ["python", "train.py", "a"]),
        (PLAIN, [PYTHON, "-m", "train", "a"]),
        (PLAIN, ["train.py", "a"]),
        (PLAIN, ["sh", "job.sh"]),
    ],
    ids=["script", "module", "bare", "shell"],
)
def test_however_a_program_is_started_its_steps_are_there(tmp_path, text, command):
    program(tmp_path, text=text)
    (tmp_path / "job.sh").write_text("python train.py a\n")
    done = run_fathom(*OUT, "--", *command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "trained 2\n"), done.stderr
    assert not (tmp_path / "out.fathom" / "raw").exists()
    [(rank, steps)] = steps_of(tmp_path).items()
    assert rank == 0 and 58 <= steps <= 60
    manifest = open_sounding(tmp_path / "out.fathom").manifest
    assert manifest.command[-1] == command[-1] and manifest.ended == "finished"


def test_torchrun_gives_a_rank_each(tmp_path):
    program(tmp_path, text=DISTRIBUTED)
    torchrun = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    done = run_fathom(*OUT, "--", *torchrun, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = steps_of(tmp_path)
    assert sorted(result) == [0, 1] and min(result.values()) >= 58


def test_raw_records_become_the_same_sounding_elsewhere(tmp_path):
    program(tmp_path)
    run_fathom(*OUT, "--raw", "--", "python", "train.py", cwd=tmp_path)
    raw = tmp_path / "out.fathom" / "raw"
    assert list(raw.glob("trace-*.json.gz")) and not list(raw.glob("trace-*.json"))
    done = run_fathom("import", "out.fathom", "--json", cwd=tmp_path)
    summary = json.loads(done.stdout)
    assert done.returncode == 0 and summary["rows"]["ops"] > 0 and summary["ranks"] == [0]
    assert not raw.exists() and summary["rows"]["steps"] >= 58


def test_the_plan_reaches_the_program_and_raw_records_are_imported_to_another_place(tmp_path):
    program(tmp_path, text=PLAIN)
    run_fathom(*OUT, "--raw", "--depth", "surface", "--", "python", "train.py", cwd=tmp_path)
    assert record(tmp_path / "out.fathom", "plan")["settle"] == 4
    assert list((tmp_path / "out.fathom" / "raw").glob("trace-*")) == []
    done = run_fathom("import", "out.fathom", "-o", "other.fathom", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.fathom" / "raw").is_dir() and (tmp_path / "other.fathom/manifest.json").exists()


def test_stop_after_ends_a_long_program(tmp_path):
    program(tmp_path, steps=10_000_000, text=PLAIN)
    done = run_fathom(*OUT, "--stop-after", 40, "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert open_sounding(tmp_path / "out.fathom").manifest.ended == "stopped"
    assert steps_of(tmp_path)[0] >= 39 and "Traceback" not in done.stderr


@pytest.mark.parametrize(("steps", "text"), [(6, OPTIMIZED), (22, TRAIN)], ids=["6", "22"])
def test_a_short_programs_report_says_how_to_record_its_timeline(tmp_path, steps, text):
    program(tmp_path, steps=steps, text=text)  # an optimizer's steps are known from the second on
    run = ("run", "--quiet", "-o", "out.fathom", "--replace", "--settle")
    run_fathom(*run, 30, "--", "python", "train.py", cwd=tmp_path)
    by_what = {row.what: row.why for row in open_sounding(tmp_path / "out.fathom").examine().abstained}
    settle, *more = re.search("`--settle (.*)`", by_what["ledger"])[1].split()
    run_fathom(*run, settle, *more, "--", "python", "train.py", cwd=tmp_path)
    assert open_sounding(tmp_path / "out.fathom").examine().devices[0].ledger


def test_a_crash_leaves_its_steps_and_its_status(tmp_path):
    program(tmp_path, text=PLAIN + "\nraise SystemExit(9)\n")
    done = run_fathom(*OUT, "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 9
    assert open_sounding(tmp_path / "out.fathom").manifest.exit_status == 9
    assert steps_of(tmp_path)[0] >= 58


def test_ctrl_c_leaves_a_sounding(tmp_path):
    program(
        tmp_path,
        text=PLAIN.replace("fathom.step()", "fathom.step(); i != 50 or print('fifty', flush=True)"),
        steps=10**8,
    )
    process = start_fathom(*OUT, "--", "python", "train.py", cwd=tmp_path)
    assert process.stdout.readline() == "fifty\n"
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert open_sounding(tmp_path / "out.fathom").manifest.ended == "interrupted"


def test_a_program_without_steps_is_a_sounding_that_says_so(tmp_path):
    program(tmp_path, text="import torch\nprint(torch.ones(3).sum())\n")
    done = run_fathom(*OUT, "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "tensor(3.)\n"
    assert open_sounding(tmp_path / "out.fathom").manifest.ended == "no-steps"


def test_a_server_that_got_no_request_is_said_to_have_got_none(tmp_path):
    pytest.importorskip("uvicorn")
    text = """
import threading, torch, uvicorn
async def app(scope, receive, send): ...
server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off"))
threading.Timer(0.5, setattr, (server, "should_exit", True)).start()
server.run()
"""
    program(tmp_path, text=text)
    done = run_fathom(*OUT, "--", "python", "train.py", cwd=tmp_path)
    manifest = open_sounding(tmp_path / "out.fathom").manifest
    (why,) = (entry["why"] for entry in manifest.abstained if entry["what"] == "steps")
    assert manifest.ended == "no-steps" and "send it requests" in why and "fathom.step()" not in why, (
        done.stderr
    )
    assert not [problem for problem in manifest.problems if problem.code == "server"]


def test_a_program_that_never_heard_of_torch(tmp_path):
    done = run_fathom(*OUT, "--", "true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    sounding = open_sounding(tmp_path / "out.fathom")
    assert sounding.manifest.ended == "no-steps"
    assert sounding.sql("SELECT count(*) AS n FROM telemetry WHERE device = -1").item() >= 1
