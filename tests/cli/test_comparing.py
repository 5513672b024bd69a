"""`fathom compare` and `fathom gate` as a user calls them."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import fathom
from fathom.cli.compare import repeated
from fathom.cli.main import app
from tests.support.small_sounding import make


@pytest.fixture
def a(tmp_path):
    return make(tmp_path / "a.fathom").path


@pytest.fixture
def b(tmp_path):
    return make(tmp_path / "b.fathom").path


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_several_recordings_follow_one_option():
    words = ["--baseline", "a", "b", "--candidate", "c", "d", "--json"]
    assert repeated(words) == [
        "--baseline",
        "a",
        "--baseline",
        "b",
        "--candidate",
        "c",
        "--candidate",
        "d",
        "--json",
    ]
    assert repeated(["a", "--kind", "x", "b"]) == ["a", "--kind", "x", "b"]


def test_json_is_the_comparison_of_the_api(a, b):
    shown = invoke("compare", "--baseline", a, "--candidate", b, "--json")
    result = fathom.open(a).compare(b)
    document = json.loads(shown.output)
    assert (
        document["change_ns"] == result.change_ns == sum(entry["change_ns"] for entry in document["entries"])
    )
    assert document["headline"] == result.headline


@pytest.mark.parametrize(
    "words", [["a"], ["a", "b", "c"], ["--baseline", "a"], ["a", "b", "--baseline", "c"]]
)
def test_both_sides_must_be_given(words):
    shown = invoke("compare", *words)
    assert shown.exit_code == 2 and "Give a baseline and a candidate" in shown.stderr


def test_a_rank_that_was_not_recorded(a, b):
    shown = invoke("compare", a, b, "--rank", "7")
    assert shown.exit_code == 2 and "no rank 7; use one of: 0, 1" in shown.stderr


@pytest.mark.parametrize(("limit", "status"), [("+5 %", 0), ("<= 1 ms", 1), ("fast", 2)])
def test_the_exit_status_of_a_gate(tmp_path, a, b, limit, status):
    budgets = tmp_path / "fathom.toml"
    budgets.write_text(f'[budgets]\nstep = "{limit}"\n')
    junit, markdown = tmp_path / "gate.xml", tmp_path / "gate.md"
    shown = invoke("gate", b, "--baseline", a, "--budgets", budgets, "--junit", junit, "--markdown", markdown)
    assert shown.exit_code == status, shown.output
    if status < 2:
        assert ElementTree.parse(junit).getroot().get("failures") == str(status)
        assert markdown.read_text().startswith("### Fathom: " + ("over" if status else "within"))


def test_a_gate_without_a_baseline_or_a_file(tmp_path, b):
    budgets = tmp_path / "fathom.toml"
    assert "does not exist" in invoke("gate", b, "--budgets", budgets).stderr
    budgets.write_text('[budgets]\nstep = "<= 20 ms"\nledger.compute = "<= 50 % of step"\n')
    assert invoke("gate", b, "--budgets", budgets).exit_code == 0
    budgets.write_text('[budgets]\nstep = "+2 %"\n')
    shown = invoke("gate", b, "--budgets", budgets)
    assert shown.exit_code == 2 and "give a --baseline" in shown.stderr
