"""Rows of knobs refer to things that exist, and fit the facts of a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from fathom.diagnosis import kinds
from fathom.errors import BadInputError
from fathom.machine.compare.rules import rules
from fathom.probe.knobs import ACTS
from fathom.tuner import catalogue, knobs_in
from fathom.tuner.facts import Facts
from fathom.tuner.knobs import fitting
from fathom.tuner.sandbox import Scratch


def test_rows_refer_to_findings_acts_and_kinds_of_results() -> None:
    knobs = catalogue()
    assert len({knob.id for knob in knobs}) == len(knobs)
    assert {kind for knob in knobs for kind in knob.suggested_by} <= set(kinds())
    assert {act for knob in knobs for value in knob.values for act in value.acts} <= set(ACTS)
    assert {knob.carries for knob in knobs} <= set(rules().kinds)
    assert all(knob.code and knob.values and 0 <= knob.saves < 1 for knob in knobs)


def test_only_what_fits_is_kept_and_the_present_state_is_no_value() -> None:
    facts = Facts(
        frozenset({"torch", "loader", "computes-on-cpu", "glibc", "several-cores"}), cores=2, workers=2
    )
    fit = {knob.id: knob for knob in fitting(catalogue(), facts)}
    assert "device-memory" not in fit and "optimizer" not in fit and "thread-binding" not in fit
    workers = [value.acts["loader"]["num_workers"] for value in fit["loader"].values]
    assert sorted(workers) == [0, 1, 2, 3]  # 2 with a longer queue alone; half of the cores is 1 again


ADAPTER = """
[[knob]]
id = "batch"
argument = "--batch"
values = [16, 32]
work = [2, 4]
"""


def test_an_adapter_file_declares_knobs(tmp_path: Path) -> None:
    (tmp_path / "knobs.toml").write_text(ADAPTER)
    (knob,) = knobs_in(tmp_path / "knobs.toml")
    assert [(value.arguments, value.work) for value in knob.values] == [
        ({"--batch": "16"}, 2),
        ({"--batch": "32"}, 4),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ADAPTER.replace('argument = "--batch"', ""), "either an argument or an environment variable"),
        (ADAPTER.replace("[2, 4]", "[2]"), "as many numbers under work"),
        (ADAPTER.replace('"batch"', '"loader"'), "exists already"),
        (ADAPTER.replace("values", "valeus"), "is not an adapter file"),
    ],
)
def test_a_wrong_adapter_file_gets_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "knobs.toml").write_text(text)
    with pytest.raises(BadInputError, match=message):
        knobs_in(tmp_path / "knobs.toml")


def test_a_scratch_copy_protects_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "x").write_text("original")
    (folder / ".git").mkdir()
    scratch = Scratch(folder, folder / "a.tune" / "scratch")
    (folder / "a.tune").mkdir()
    scratch.renew()
    (scratch.cwd / "data" / "x").write_text("changed")
    assert (folder / "data" / "x").read_text() == "original"
    assert not (scratch.cwd / ".git").exists() and not (scratch.cwd / "a.tune").exists()
    given = ["python", str(folder / "data" / "x"), "data/x", str(folder / ".venv/bin/python")]
    assert scratch.words(given) == ["python", str(scratch.place / "data" / "x"), *given[2:]]
    scratch.renew()
    assert (scratch.cwd / "data" / "x").read_text() == "original"
    scratch.remove()
    assert not scratch.place.exists()
