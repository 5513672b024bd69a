"""The twelve ordinary programs: their labels agree with their sources, they run, and the score is honest."""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.ordinary.labels import FAULTY, FORMS, MENDED, PROGRAMS, labels, line_of
from benchmarks.ordinary.runs import WORKERS, Outcome, advised, environment
from benchmarks.ordinary.score import row, table
from fathom.diagnosis.kinds import kinds
from tests.support import warm

BOUNDS = {"input", "host", "launch", "communication", "copy", "memory", "compute"}
NAMES = sorted(labels())


def test_there_are_twelve_programs_each_with_a_label():
    helpers = {"common", "client", "loading", "tracking_server"}
    assert len(NAMES) == 12
    assert {path.stem for path in PROGRAMS.glob("*.py")} - helpers == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_label_names_known_findings_and_marked_lines(name):
    label = labels()[name]
    assert label.kinds and set(label.kinds) | set(label.allowed) <= set(kinds())
    assert label.bound and set(label.bound) <= BOUNDS
    assert label.lines, "no line is marked as the cause"
    assert all(any(line in span for span in label.functions) for line in label.lines)


@pytest.mark.parametrize(
    ("source", "place"),
    [("programs/gan.py:{line} main", "line"), ("/x/gan.py({next}): main", "function"), ("gan.py:1", "file")],
)
def test_a_source_is_placed_by_file_and_line(source, place):
    label = labels()["gan"]
    (line,) = label.lines
    assert label.place(source.format(line=line, next=line + 1)) == place
    assert label.place("torch/nn/modules/module.py:10") == "elsewhere"
    assert label.place(None) == "none"


def test_a_line_is_read_from_either_way_of_writing_it():
    assert line_of("a/gan.py:73 main", "gan.py") == 73
    assert line_of("a/gan.py(12): main", "gan.py") == 12
    assert line_of("a/gan.py", "gan.py") == 0


@pytest.mark.programs
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_a_program_runs_two_steps(name, form, tmp_path):
    label = labels()[name]
    missing = [
        library for library in (label.library.partition(".")[0], "torch") if find_spec(library) is None
    ]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    times = tmp_path / "times.json"
    command = label.command(form, "--steps", "3", "--times", str(times))
    words = command[command.index(str(label.path)) :]
    here = {**environment(), "TMPDIR": str(tmp_path)}
    for done in warm.run_ranks(words, here, label.ranks, timeout=300):
        assert done.returncode == 0, done.stderr
    assert times.read_text().count(",") == 1, "two steps lie between three ticks"


def finding(kind: str, share: float, gain: float, source: str | None = None) -> dict:
    where = {"source": source}
    return {
        "id": kind,
        "share": share,
        "gain_ms": gain,
        "low_ms": 0.9 * gain,
        "high_ms": 1.1 * gain,
        "where": where,
    }


def seen(faulty: list[dict], mended: list[dict], bound: str = "host") -> Outcome:
    outcome = Outcome(labels()["gan"], clean={FAULTY: [30.0, 31.0], MENDED: [10.0, 11.0]})
    step, verdict = {"clean_ms": 30.0}, {"bound": bound}
    outcome.examined = {
        FAULTY: {"findings": faulty, "step": step, "verdict": verdict},
        MENDED: {"findings": mended, "step": step, "verdict": None},
    }
    return outcome


def test_a_right_answer_scores_in_every_column():
    (line,) = labels()["gan"].lines
    item = row(seen([finding("host-garbage-collection", 0.6, 20.0, f"gan.py:{line}")], []))
    assert (item["first"], item["place"], item["bound"], item["inside"]) == (True, "line", True, True)
    assert item["mended_clean"] and item["no_harm"]
    assert (item["realised_low_ms"], item["realised_ms"], item["realised_high_ms"]) == (19.0, 20.0, 21.0)


def test_wrong_answers_are_counted():
    outcome = seen([finding("host-python", 0.6, 5.0)], [finding(WORKERS, 0.5, 5.0)], "input")
    outcome.remedies = {f"{MENDED} {WORKERS}": [20.0, 22.0]}
    item = row(outcome)
    assert not (item["first"] or item["bound"] or item["inside"] or item["mended_clean"] or item["no_harm"])
    assert item["place"] == "none"
    assert "10.5 -> 21.0 ms" in item["harmful"][0] and "!" in table([item])


def test_a_cause_that_is_true_of_both_forms_still_counts_as_the_cause():
    outcome = seen([finding("host-python", 0.6, 20.0)], [finding("host-python", 0.3, 2.0)])
    outcome.label = labels()["dqn"]
    item = row(outcome)
    assert item["first"] and item["mended_clean"]


def test_a_remedy_that_is_slower_by_chance_does_no_harm():
    outcome = seen([], [])
    outcome.remedies = {f"{MENDED} {WORKERS}": [10.4, 14.0]}
    assert row(outcome)["no_harm"]


@pytest.mark.parametrize(
    ("kind", "remedy", "options"),
    [
        (WORKERS, "DataLoader(data, batch, num_workers=3)", ["--workers", "3"]),
        ("input-sample-by-sample", "x[index]", ["--whole-batches"]),
        ("host-python", "", []),
    ],
)
def test_a_remedy_is_followed_as_it_says(kind, remedy, options):
    assert advised({"id": kind, "remedy": remedy}) == options


def test_programs_do_not_write_beside_themselves():
    before = {path for path in PROGRAMS.rglob("*") if "__pycache__" not in path.parts}
    environment_of_run = {**environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    command = labels()["particles"].command(MENDED, "--steps", "2")
    subprocess.run(command, env=environment_of_run, cwd=Path(os.sep), check=True, timeout=120)
    assert {path for path in PROGRAMS.rglob("*") if "__pycache__" not in path.parts} == before
