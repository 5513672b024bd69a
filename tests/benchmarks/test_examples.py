"""The example is a real program: it trains without Fathom, and it learns."""

from __future__ import annotations

import json
import os
import re

import pytest
import tomllib

from tests.support import warm
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
PROGRAMS = ROOT / "benchmarks" / "programs"


def run(*words: object) -> str:
    done = warm.run(words, os.environ, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_and_the_programs_have_never_heard_of_fathom():
    marks_its_steps = PROGRAMS / "host_delays.py"  # its form without torch has nothing else that counts them
    for file in {EXAMPLES / "train_gpt.py", *PROGRAMS.glob("*.py")} - {marks_its_steps}:
        assert "fathom" not in file.read_text().lower(), file.name


def test_the_book_is_complete_and_of_a_size_to_ship():
    book = (EXAMPLES / "data" / "moby-dick.txt").read_text(encoding="utf-8")
    chapters = [int(number) for number in re.findall(r"^CHAPTER (\d+)\. ", book, re.M)]
    assert chapters == list(range(1, 136))
    assert len(book.encode()) < 1_500_000
    assert "gutenberg" not in book.lower()


@pytest.mark.programs
def test_the_example_learns(tmp_path):
    small = ["--layers", 2, "--width", 64, "--batch", 4, "--steps", 60, "--workers", 1, "--device", "cpu"]
    losses = re.findall(
        r"loss ([\d.]+)", run(EXAMPLES / "train_gpt.py", *small, "--times", tmp_path / "t.json")
    )
    assert float(losses[-1]) < 5.0  # a guess among 256 bytes costs 5.5
    assert len(json.loads((tmp_path / "t.json").read_text())["steps_s"]) == 60


@pytest.mark.programs
@pytest.mark.parametrize("program", ["launch_bound", "many_events", "cuda_graph"])
def test_programs_run_on_a_cpu_and_time_themselves(program, tmp_path):
    times = tmp_path / "t.json"
    run(PROGRAMS / f"{program}.py", "--small", "--device", "cpu", "--steps", 3, "--times", times)
    document = json.loads(times.read_text())
    assert len(document["steps_s"]) == 3
    assert 0 < sum(document["steps_s"]) <= document["total_s"]


@pytest.mark.programs
def test_planted_delays_are_as_long_as_they_say(tmp_path):
    plants = ["--plant", "loader:20ms", "--plant", "python:10ms", "--plant", "checkpoint:30ms"]
    truth = tmp_path / "truth.json"
    small = ["--small", "--device", "cpu", "--steps", 4]
    run(PROGRAMS / "planted.py", *small, *plants, "--truth", truth, "--times", tmp_path / "t.json")
    by_name = {plant["kind"]: plant for plant in json.loads(truth.read_text())["plants"]}
    for kind, asked in (("loader", 20), ("python", 10), ("checkpoint", 30)):
        assert by_name[kind]["asked_ms"] == asked
        assert len(by_name[kind]["lengths_ms"]) == 4
        assert min(by_name[kind]["lengths_ms"]) >= asked
    steps = json.loads((tmp_path / "t.json").read_text())["steps_s"]
    assert all(1e3 * step > 60 for step in steps)


def test_every_bar_names_its_command():
    bars = tomllib.loads((ROOT / "docs" / "bars.toml").read_text())["bar"]
    assert len({bar["id"] for bar in bars}) == len(bars)
    for bar in bars:
        assert set(bar) == {"id", "text", "state", "command", "figure", "commit"}
        for file in re.findall(r"(?:benchmarks|faults|tests)/[\w/]+\.(?:py|sh)", bar["command"]):
            assert (ROOT / file).exists(), file
        for module in re.findall(r"-m ((?:benchmarks|faults)\.[\w.]+)", bar["command"]):
            path = ROOT / module.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
