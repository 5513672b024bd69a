"""Tools that run programs."""

from __future__ import annotations

import contextlib

import anyio
import psutil
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from fathom.agent import Allowed, Roots, make_server
from fathom.agent.acting import started
from tests.support.running import PYTHON, SOURCE, environment

SQUARES = """
import json, sys, time
import fathom

lines = [json.dumps({"value": n}) for n in range(3000)]
rows = [json.loads(line)["value"] for line in lines]
total = 0
for step in range(int(sys.argv[1])):
    READ
    total += sum(row * row for row in rows)
    fathom.step()
json.dump({"total": [total]}, open("out.json", "w"))
"""
SLOW = SQUARES.replace("READ", 'rows = [json.loads(line)["value"] for line in lines]')
FAST = SQUARES.replace("READ", "pass")
WRONG = FAST.replace("row * row", "row")
NOISY = "import sys\nfor _ in range(3_000):\n    sys.stdout.write('x' * 10_000)\n"
CHILD = "import subprocess, sys, time\nsubprocess.Popen([sys.executable, 'wait.py'])\ntime.sleep(600)\n"
WAIT = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
PROGRAMS = {
    "slow.py": SLOW, "fast.py": FAST, "wrong.py": WRONG,
    "noisy.py": NOISY, "child.py": CHILD, "wait.py": WAIT,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


ALLOWED = f"{PYTHON} *.py *"


def separate(folder):
    """A server over standard input and output, as an agent starts it."""
    words = ["-m", "fathom", "mcp", "--root", str(folder), "--allow-run", ALLOWED]
    return StdioServerParameters(command=PYTHON, args=words, env=environment(), cwd=folder)


@pytest.fixture
def server(folder, monkeypatch):
    """A server in this process."""
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    return make_server(Roots([folder]), Allowed([ALLOWED]))


def with_server(server, work):
    """Do `work(call)` with a server that allows every program in the folder."""

    async def run():
        async with Client(server, read_timeout_seconds=180) as client:

            async def call(tool, **arguments):
                result = await client.call_tool(tool, arguments)
                return result.content[0].text if result.is_error else result.structured_content["facts"]

            await work(call)

    anyio.run(run)


@pytest.mark.programs
def test_from_a_recording_to_a_proven_fix(folder):
    async def loop(call):
        before = await call("record", command=f"{PYTHON} slow.py 100000", steps=5)
        assert before["sounding"] == "slow.fathom" and before["step"]["clean_ms"] > 0
        report = await call("report", sounding="slow.fathom")
        assert report["step"]["clean_ms"] == before["step"]["clean_ms"]
        sides = {"baseline": f"{PYTHON} slow.py 40", "candidate": f"{PYTHON} fast.py 40"}
        proof = await call("prove", **sides, metrics="out.json", budget_s=0.1, margin=0.1)
        assert proof["ratio"] < 1 and proof["verdict"] in (
            "faster",
            "inconclusive",
        )  # others use this machine too
        sides["candidate"] = f"{PYTHON} wrong.py 40"
        proof = await call("prove", **sides, metrics="out.json", budget_s=0.1)
        assert proof["verdict"] == "refused" and proof["refused_because"]

    with_server(separate(folder), loop)


@pytest.mark.programs
def test_what_is_not_allowed_does_not_run(folder, server):
    async def attempts(call):
        for command in ("python3 -c pass", f"{PYTHON} -c pass.py", f"{PYTHON} wait.py; {PYTHON} wait.py"):
            assert isinstance(await call("record", command=command), str)
        both = {"baseline": f"{PYTHON} slow.py 1", "candidate": "rm -rf /"}
        assert "not allowed" in await call("prove", **both)
        assert "not allowed" in await call("prove", baseline="os:getcwd", candidate="os:getpid")
        assert "outside" in await call(
            "prove", **(both | {"candidate": both["baseline"]}), metrics="../x.json"
        )
        assert "no technique" in await call("lab_run", name="nothing")
        assert (await call("lab_run", name="transpose"))["state"] == "skipped"  # it needs a GPU
        assert not (folder / "pid").exists()

    with_server(server, attempts)


@pytest.mark.programs
def test_a_program_that_prints_much_or_hangs_is_bounded(server):
    async def runs(call):
        noisy = await call("record", command=f"{PYTHON} noisy.py", depth="surface")
        assert len(noisy if isinstance(noisy, str) else noisy["output"]) < 4000
        assert "stopped after 2 s" in await call("record", command=f"{PYTHON} wait.py", timeout_s=2)

    with_server(server, runs)


@pytest.mark.programs
def test_a_stopped_run_leaves_no_process(folder, monkeypatch):
    pid = folder / "pid"
    monkeypatch.setenv("PYTHONPATH", SOURCE)

    async def stop():
        with anyio.fail_after(120):
            async with started(("run", "-q", "--depth", "surface", "--", PYTHON, "child.py"), str(folder)):
                while not pid.exists() or not pid.read_text():
                    await anyio.sleep(0.05)

    anyio.run(stop)
    with contextlib.suppress(psutil.NoSuchProcess):  # or it is dead and not collected yet
        assert psutil.Process(int(pid.read_text())).status() == psutil.STATUS_ZOMBIE
