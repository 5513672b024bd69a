"""Tests of this folder record real programs on a real GPU; they are skipped where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
Record = Callable[..., dict[str, Any]]


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}{os.sep}"
    mine = [item for item in items if str(item.path).startswith(here)]
    if mine and not _has_gpu():
        skip = pytest.mark.skip(reason="no CUDA device")
        for item in mine:
            item.add_marker(skip)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Record a program of this folder and return its examination as the JSON contract has it."""

    def run(program: str, *options: str, **environment: str) -> dict[str, Any]:
        fathom = [sys.executable, "-m", "fathom"]
        output = str(tmp_path / "recorded.fathom")
        quiet = ["--quiet", "--no-measure", "--replace", "-o", output]
        command = [*fathom, "run", *quiet, *options, "--", sys.executable]
        words = [*command, str(PROGRAMS / program)]
        subprocess.run(words, check=True, env={**os.environ, **environment}, timeout=180)
        report = subprocess.run([*fathom, "report", output, "--json"], check=True, capture_output=True)
        return json.loads(report.stdout)

    return run
