"""`fathom watch` on the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from fathom.cli.main import app
from tests.support.live_recording import LiveRecording
from tests.support.running import run_fathom


@pytest.fixture
def recording(tmp_path):
    made = LiveRecording(tmp_path / "run.fathom")
    made.steps(100, 20, wait_ms=5)
    return made


def watched(*words):
    result = CliRunner().invoke(app, ["watch", *map(str, words)])
    return result.exit_code, result.output


def test_the_present_state_as_a_page_and_as_json(recording):
    status, page = watched(recording.folder, "--once")
    assert status == 0 and "step time" in page and "20.0 ms" in page
    status, text = watched(recording.folder, "--once", "--json")
    assert status == 0 and json.loads(text)["ranks"][0]["steps"] == 100


def test_lines_end_with_the_program(recording):
    recording.end(ended="exited", exit_status=3)
    status, text = watched(recording.folder, "--plain")
    assert status == 0 and "exited with status 3" in text.splitlines()[-1]
    status, text = watched(recording.folder, "--json")
    assert status == 0 and json.loads(text.splitlines()[-1])["ended"] == "exited"


def test_without_a_path_the_newest_recording_that_runs_is_watched(recording, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    over = LiveRecording(tmp_path / "over.fathom")
    over.end()
    assert "run.fathom" in watched("--once")[1]
    recording.end()
    assert "no running recording in this folder" in watched("--once")[1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nothing.fathom"], "does not exist"),
        (["."], "is not a running recording"),
        (["done.fathom"], "read it with `fathom report"),
        (["run.fathom", "--alert", "0"], "at least 1 percent"),
        (["run.fathom", "--alert", "20", "--alert-steps", "2"], "at least 5 steps"),
        (["run.fathom", "--serve", "web"], "write PORT or ADDRESS:PORT"),
    ],
)
def test_bad_input_is_one_sentence(recording, tmp_path, monkeypatch, words, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "done.fathom").mkdir()
    (tmp_path / "done.fathom" / "manifest.json").write_text("{}")
    status, output = watched(*words)
    assert status == 2 and text in output.replace("\n", " ") and "Traceback" not in output


def test_the_command_loads_no_tables(recording, tmp_path):
    """A watch runs as long as the program, so it stays small."""
    result = run_fathom(
        "watch", recording.folder, "--once", cwd=tmp_path, PYTHONVERBOSE="", PYTHONPROFILEIMPORTTIME="1"
    )
    assert result.returncode == 0
    assert not {"polars", "numpy", "torch"} & {
        line.rpartition("|")[2].strip() for line in result.stderr.splitlines()
    }
