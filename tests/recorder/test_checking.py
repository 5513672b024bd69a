"""The checks of the machine, noted beside its inventory once a recorded program has ended."""

from __future__ import annotations

import json

from fathom.machine.checks import recalled
from fathom.recorder.finishing import note_checks


def test_the_checks_join_the_inventory_of_a_recording(tmp_path):
    launch = {"command": ["x"], "machine": {"fingerprint": "f"}}
    (tmp_path / "launch.json").write_text(json.dumps(launch))
    note_checks(tmp_path)
    noted = json.loads((tmp_path / "launch.json").read_text())
    assert recalled(noted["machine"]) and noted["machine"].pop("checks") and noted == launch
    assert [path.name for path in tmp_path.iterdir()] == ["launch.json"]


def test_a_recording_without_an_inventory_is_left_as_it_is(tmp_path):
    note_checks(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "launch.json").write_text("{")
    note_checks(tmp_path)
    assert (tmp_path / "launch.json").read_text() == "{"
