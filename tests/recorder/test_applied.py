"""Settings files: what is written is read again, and arguments replace those of the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fathom.diagnosis import examine
from fathom.errors import BadInputError
from fathom.machine import inventory
from fathom.recorder import Applied, read_settings, write_settings
from fathom.report import heading
from fathom.sounding import open_store
from tests.support.running import PYTHON, run_fathom

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
NAMES = st.text("ABC_-.1", min_size=1, max_size=8)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    environment=st.dictionaries(NAMES, TEXT, max_size=3),
    arguments=st.dictionaries(NAMES, TEXT, max_size=3),
    proof=st.dictionaries(
        NAMES, st.floats(0.1, 9) | st.lists(st.integers(-9, 9), max_size=3) | TEXT, max_size=3
    ),
    workers=st.integers(0, 64),
)
def test_what_is_written_is_read(tmp_path: Path, environment, arguments, proof, workers: int) -> None:
    acts = {"loader": {"num_workers": workers, "persistent_workers": True}, "optimizer": "fused"}
    applied = Applied(
        environment=environment, arguments=arguments, acts=acts, proof=proof, machine='{"a": "\\"b"}'
    )
    write_settings(applied, tmp_path / "settings.toml", "a header\nof two lines")
    assert read_settings(tmp_path / "settings.toml") == applied


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train.py --batch 8 --lr 1", "train.py --batch 16 --lr 1"),
        ("train.py --batch=8", "train.py --batch=16"),
        ("train.py", "train.py --batch 16"),
    ],
)
def test_arguments_replace_those_of_the_command(command: str, expected: str) -> None:
    assert Applied(arguments={"--batch": "16"}).words(command.split()) == expected.split()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("format = 9", "has format 9"),
        ("[acts]\nunknown = 1", "has an unknown act, 'unknown'"),
        ("[other]\na = 1", "is not a settings file"),
        ("[environment]\na = 1", "is not a settings file"),
        ("= 3", "is not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_used_gets_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(BadInputError, match=message):
        read_settings(tmp_path / "s.toml")
    with pytest.raises(BadInputError, match="does not exist"):
        read_settings(tmp_path / "none.toml")


def test_a_recording_names_its_settings_and_doubts_those_of_another_machine(tmp_path: Path) -> None:
    machine = inventory()
    machine["host"]["cpu"]["usable_cores"] *= 4
    applied = Applied(
        environment={"PLANTED": "7"},
        knobs={"loader": "four workers", "planted": "seven"},
        carries={"loader": "input", "planted": "anywhere"},
        machine=json.dumps(machine),
    )
    write_settings(applied, tmp_path / "s.toml")
    program = tmp_path / "program.py"
    program.write_text("import os\nprint(os.environ['PLANTED'])\n")
    words = ("--settings", tmp_path / "s.toml", "-o", tmp_path / "s.fathom", "--", PYTHON, program)
    done = run_fathom("run", "-q", *words, cwd=tmp_path)
    assert done.stdout == "7\n"
    assert "may be slower here: loader: four workers; see `fathom machine compare" in done.stderr
    sounding = examine(open_store(tmp_path / "s.fathom")).sounding
    assert sounding.settings == applied.knobs
    assert any("loader: four workers" in line.plain for line in heading.headline(sounding))
