"""The places of settings are those in the program's text, and the program runs as it would without."""

from __future__ import annotations

import json
from pathlib import Path
from zlib import crc32

import pytest

from tests.support.paths import PROGRAMS
from tests.support.probe_programs import Run, launch

pytestmark = pytest.mark.programs
STEPS = "12"


def sites(run: Run) -> dict:
    (file,) = run.raw.glob("sites-*.json")
    return json.loads(file.read_text())


def test_places_are_the_calls_in_the_text(tmp_path: Path) -> None:
    run = launch(tmp_path, "settled.py", STEPS, plan={"depth": "surface", "sites": [str(PROGRAMS)]})
    seen, path = sites(run), PROGRAMS / "settled.py"
    lines = path.read_text().splitlines()
    assert seen["main"] == str(path) and seen["sources"] == {str(path): crc32(path.read_bytes())}
    texts = {}
    for place in seen["places"]:
        file, function, begins, line, end_line, column, end_column = place["stack"][0]
        assert (file, function, begins) == (str(path), "<module>", 1) and line == end_line
        texts[place["kind"]] = lines[line - 1].encode()[column:end_column].decode()
    assert texts == {
        "optimizer": "torch.optim.AdamW(model.parameters(), lr=0.01)",
        "loader": "DataLoader(data, 2)",
        "module": "model(x)",
    }
    (stack,) = seen["steps"]
    assert [lines[frame[3] - 1].strip() for frame in stack if frame[0] == str(path)] == ["optimizer.step()"]


def test_values_in_effect(tmp_path: Path) -> None:
    acts = {
        "optimizer": "fused",
        "loader": {"num_workers": 1, "persistent_workers": True},
        "channels_last": True,
        "garbage": "freeze",
        "matmul_precision": "medium",
    }
    plan = {"depth": "surface", "sites": [str(PROGRAMS)], "acts": acts}
    seen = sites(launch(tmp_path, "settled.py", STEPS, plan=plan))
    about = {place["kind"]: place["about"] for place in seen["places"]}
    assert about["optimizer"]["fused"] is True
    assert (
        about["loader"] | {"num_workers": 1, "persistent_workers": True, "iterable": False} == about["loader"]
    )
    assert about["module"] | {"device": "cpu", "compiled": False, "channels_last": True} == about["module"]
    assert seen["effects"]["frozen"] > 0 and seen["effects"]["matmul_precision"] == "medium"


def test_the_program_computes_the_same_with_it(tmp_path: Path) -> None:
    outputs = []
    for name, folders in (("a", []), ("b", [str(PROGRAMS)])):
        run = launch(tmp_path / name, "settled.py", STEPS, plan={"depth": "surface", "sites": folders})
        outputs.append(run.out)
        assert len(list(run.raw.glob("sites-*.json"))) == len(folders)
        assert not [note for note in run.of("note") if note["what"] == "fault"]
    assert outputs[0] == outputs[1]
