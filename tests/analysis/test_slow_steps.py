"""Slow steps that were recorded on demand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fathom.cli.main import app
from tests.support.running import run_fathom

PROGRAM = """
import time, torch
model = torch.nn.Linear(64, 64)
for step in range(480):
    model(torch.ones(8, 64)).sum().backward()
    time.sleep(0.2 if step > 200 and step % 12 == 0 else 0.004)
"""


@pytest.mark.programs
def test_a_slow_step_is_kept_with_a_ledger_of_its_own_and_outside_the_means(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    output = tmp_path / "slow.fathom"
    words = ("run", "--quiet", "--on-slow-step", "-o", output, "--", sys.executable, "program.py")
    done = run_fathom(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    examination = json.loads(report("--json", str(output)))
    planted = [slow for slow in examination["slow"] if slow["ms"] > 200]  # a busy machine adds slow steps
    assert planted
    idle = ("idle: python", "idle: blocked")
    slept = [sum(row["ms"] for row in slow["ledger"] if row["entry"] in idle) for slow in planted]
    assert max(slept) > 190
    assert examination["devices"][0]["total_ms"] < max(slow["ms"] for slow in planted) / 2
    assert "slow steps" in report(str(output))


def report(*words: str) -> str:
    printed = CliRunner().invoke(app, ["report", *words])
    assert printed.exit_code == 0, printed.output
    return printed.stdout
