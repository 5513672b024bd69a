"""`fathom tips` as a user runs it: this machine, a recording, a manifest; as text, as JSON, and in pipes."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from typer.testing import CliRunner

import fathom
from fathom.cli.main import app
from fathom.tips import tips
from tests.support.paths import EXAMPLES
from tests.support.running import environment, fathom_command

SOUNDING = EXAMPLES / "train_gpt-h200.fathom.zip"


def invoke(*words):
    return CliRunner().invoke(app, ["tips", *map(str, words)])


def as_json(*words):
    shown = invoke(*words, "--json")
    assert shown.exit_code == 0
    return json.loads(shown.stdout)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The scores of a recording, at a price."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FATHOM_NO_CACHE", "1")
        patch.setenv("FATHOM_HOME", str(tmp_path_factory.mktemp("home")))
        return as_json(SOUNDING, "--price", "3.50/h")


def test_this_machine_alone_keeps_no_tip_by_findings():
    scores = as_json()
    assert len(scores["tips"]) == len(tips()) == sum(scores["counts"].values())
    for entry in scores["tips"]:
        if entry["status"] == "kept":
            assert entry["by"]["checks"] and not entry["by"]["findings"]
        if entry["status"] == "broken":
            assert entry["checks"] and not entry["findings"]


def test_a_recording_breaks_the_tips_of_its_findings_and_keeps_those_that_were_analysed(recorded):
    scores = recorded
    examined = fathom.open(SOUNDING).examine()
    missing = {entry.what.removeprefix("finding ") for entry in examined.abstained}
    present = {finding.id for finding in examined.findings}
    by_status = {status: set() for status in scores["counts"]}
    for entry in scores["tips"]:
        by_status[entry["status"]] |= set(entry["by"]["findings"])
        if entry["status"] == "broken":
            assert set(entry["findings"]) <= present and entry["saves_per_day"]["amount"] > 0
    assert present <= by_status["broken"]
    assert not by_status["kept"] & (missing | present)
    costs = [entry["gain_ms"] for entry in scores["tips"] if entry["status"] == "broken"]
    assert costs == sorted(costs, reverse=True)


def test_without_recorded_checks_no_check_is_judged(recorded):
    for entry in recorded["tips"]:
        if entry["by"]["checks"]:
            assert entry["status"] in ("unknown", "not-applicable")


def test_python_gives_the_same_scores(recorded):
    scores = fathom.open(SOUNDING).tips(areas=["data"])
    expected = [(entry["id"], entry["status"]) for entry in recorded["tips"] if entry["area"] == "data"]
    assert [(entry.id, entry.status) for entry in scores.tips] == expected


def test_areas_and_statuses_choose_what_is_listed():
    chosen = as_json("--area", "cost", "--area", "os", "--status", "to-be-read")["tips"]
    assert {entry["area"] for entry in chosen} == {"cost", "os"}
    assert {entry["status"] for entry in chosen} == {"to-be-read"}
    text = invoke("--area", "cost", "--status", "to-be-read").stdout
    assert all(tip.id in text for tip in tips() if tip.area == "cost")
    labels = re.findall(r"^   (see|why) +(\S+)", text, re.MULTILINE)
    assert labels and all((label == "see") == (word == "fathom") for label, word in labels), labels


def test_a_manifest_is_judged(tmp_path):
    pod = tmp_path / "pod.yaml"
    pod.write_text(
        "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    image: x:latest\n"
        "    resources: {limits: {nvidia.com/gpu: 1}}\n"
    )
    broken = as_json("--manifest", pod, "--area", "kubernetes", "--status", "broken")["tips"]
    assert {"kubernetes.shm", "kubernetes.image"} <= {entry["id"] for entry in broken}


@pytest.mark.parametrize(
    "words", [["no.fathom"], ["--area", "netwrok"], ["--status", "good"], [SOUNDING, "--manifest", "x.yaml"]]
)
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    shown = invoke(*words)
    assert shown.exit_code == 2 and shown.stdout == "" and len(shown.stderr.splitlines()) == 1


def test_a_pipe_that_closes_early_is_no_error(tmp_path):
    command = " ".join(fathom_command("tips", "--status", "not-applicable"))
    done = subprocess.run(
        f"{command} | head -1", shell=True, cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr and len(done.stdout.splitlines()) == 1
