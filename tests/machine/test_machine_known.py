"""The machine of a recording: the present inventory, and ceilings stored or measured before it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fathom.gauges import QUICK
from fathom.machine import inventory, known_machine, remember
from fathom.machine.ceilings import Ceiling, to_records
from tests.support.running import SOURCE, run_fathom

SEEN = to_records([Ceiling(id="host.read", value=1e10, unit="B/s", low=1e10, high=1e10, samples=3)])
# Measuring all of the quick ones takes 20 s.
ONE_CEILING = "import fathom.gauges.catalogue as catalogue; catalogue.QUICK = ('host.read',)"


def launched(folder: Path) -> dict:
    return json.loads((folder / "out.fathom" / "raw" / "launch.json").read_text())["machine"]


def test_ceilings_are_remembered_under_the_fingerprint(tmp_path):
    machine = inventory()
    assert "ceilings" not in known_machine(folder=tmp_path)
    remember({**machine, "ceilings": SEEN}, tmp_path)
    assert known_machine(folder=tmp_path)["ceilings"] == SEEN
    other = {**machine, "fingerprint": "another"}
    assert "ceilings" not in known_machine(lambda: other, tmp_path)


def test_a_damaged_file_is_reported_and_ignored(tmp_path):
    machine, said = inventory(), []
    remember(machine, tmp_path).write_text("{")
    assert known_machine(folder=tmp_path, say=said.append)["fingerprint"] == machine["fingerprint"]
    assert "not a machine file" in said[0]


def test_a_recording_first_measures_missing_ceilings(tmp_path):
    tried = [{"id": name, "why": "left out"} for name in QUICK if name != "host.read"]
    remember({**inventory(), "missing": tried}, tmp_path)
    done = run_fathom(
        "run",
        "--raw",
        "-o",
        "out.fathom",
        "true",
        cwd=tmp_path,
        FATHOM_HOME=str(tmp_path),
        FATHOM_MEASURE="1",
    )
    assert done.returncode == 0 and "--no-measure" in done.stderr, done.stderr
    assert [ceiling["id"] for ceiling in launched(tmp_path)["ceilings"]] == ["host.read"]
    done = run_fathom(
        "run", "--raw", "-o", "o.fathom", "true", cwd=tmp_path, FATHOM_HOME=str(tmp_path), FATHOM_MEASURE="1"
    )
    assert "--no-measure" not in done.stderr  # once is enough


def test_an_unwritable_home_does_not_prevent_a_recording(tmp_path):
    (tmp_path / "home").write_text("in the way")
    words = ["run", "--raw", "-o", "out.fathom", "sh", "-c", "exit 3"]
    site = tmp_path / "site" / "sitecustomize.py"
    site.parent.mkdir()
    site.write_text(ONE_CEILING)
    here = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join([str(site.parent), SOURCE])}
    home = str(tmp_path / "home")
    done = run_fathom(*words, cwd=tmp_path, FATHOM_HOME=home, FATHOM_MEASURE="1", **here)
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert [ceiling["id"] for ceiling in launched(tmp_path)["ceilings"]] == ["host.read"]
    assert launched(tmp_path)["fingerprint"] == inventory()["fingerprint"]


def test_no_measure_leaves_it_out(tmp_path):
    words = ["run", "--raw", "--no-measure", "-o", "out.fathom", "true"]
    done = run_fathom(*words, cwd=tmp_path, FATHOM_HOME=str(tmp_path), FATHOM_MEASURE="1")
    assert done.returncode == 0 and "ceilings" not in launched(tmp_path)


def test_a_missing_program_is_reported_before_measuring(tmp_path):
    words = ["run", "--raw", "no-such-program"]
    done = run_fathom(*words, cwd=tmp_path, FATHOM_HOME=str(tmp_path), FATHOM_MEASURE="1")
    assert done.returncode == 127 and "measuring" not in done.stderr
