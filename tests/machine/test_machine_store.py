"""Machine files: kept whole, found again, and refused when they are something else."""

import dataclasses
import sys

import pytest

from fathom.machine import Ceiling, MachineFileError, Missing, ceilings, store

COPY = Ceiling(id="hbm.copy", value=4.2e12, unit="B/s", low=4.1e12, high=4.3e12, samples=20, device=0)
MACHINE = {"fingerprint": "ab12", "host": {}, "gpus": []}


def test_stored_measurements_are_found_again(tmp_path):
    store.remember({**MACHINE, "ceilings": ceilings.to_records([COPY])}, tmp_path)
    again = store.remembered("ab12", tmp_path)
    assert ceilings.from_machine(again) == [COPY]
    assert [p.name for p in (tmp_path / "machines").iterdir()] == ["ab12.json"]


def test_a_machine_never_measured_is_none(tmp_path):
    assert store.remembered("ab12", tmp_path) is None
    assert ceilings.from_machine(MACHINE) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\x00\xff"])
def test_other_files_are_refused(tmp_path, text):
    path = store.place("ab12", tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(MachineFileError, match="machine file"):
        store.remembered("ab12", tmp_path)


def test_a_missing_or_unreadable_file_says_so(tmp_path):
    with pytest.raises(MachineFileError, match="cannot be read"):
        store.read_machine(tmp_path / "none.json")
    with pytest.raises(MachineFileError, match="cannot be read"):
        store.read_machine(tmp_path)


def test_an_unwritable_home_is_reported(tmp_path):
    (tmp_path / "home").write_text("a file")
    with pytest.raises(MachineFileError, match="FATHOM_HOME"):
        store.remember(MACHINE, tmp_path / "home")


def test_the_home_can_be_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("FATHOM_HOME", str(tmp_path))
    assert store.place("ab12").parent == tmp_path / "machines"


def test_the_home_needs_no_library(monkeypatch):
    monkeypatch.delenv("FATHOM_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert store.place("ab12").parts[-3:] == ("fathom", "machines", "ab12.json")


def test_another_gpus_ceiling_is_used_if_one_was_not_measured():
    second = dataclasses.replace(COPY, device=2, value=4.0e12)
    assert ceilings.find_ceiling([COPY, second], "hbm.copy", 2) is second
    assert ceilings.find_ceiling([COPY, second], "hbm.copy", 1) is COPY
    assert ceilings.find_ceiling([COPY], "hbm.read", 0) is None


def test_missing_ceilings_are_stored_separately():
    assert ceilings.to_records([Missing(id="hbm.copy", why="no GPU")]) == [
        {"id": "hbm.copy", "why": "no GPU", "device": None}
    ]
    with pytest.raises(MachineFileError, match="measure again"):
        ceilings.from_machine({"ceilings": [{"id": "hbm.copy"}]})


def test_the_ceilings_that_bound_a_sounding(tmp_path):
    own = {**MACHINE, "ceilings": ceilings.to_records([COPY])}
    assert store.bounding(own, folder=tmp_path) is own
    assert store.bounding(MACHINE, folder=tmp_path) is MACHINE  # never measured
    store.remember(own, tmp_path)
    assert store.bounding(MACHINE, folder=tmp_path) == own
    assert store.bounding({}, folder=tmp_path) == {}  # an imported trace knows no machine
    assert store.bounding({}, store.place("ab12", tmp_path)) == own


def test_ceilings_of_a_busy_machine_are_replaced_once_they_are_measured_again(tmp_path):
    busy = dataclasses.replace(COPY, value=COPY.value / 2, conditions={"others": 0.7})
    sure = dataclasses.replace(COPY, id="hbm.read")
    recorded = {**MACHINE, "ceilings": ceilings.to_records([busy, sure])}
    assert store.bounding(recorded, folder=tmp_path) is recorded  # nothing better is known
    store.remember({**MACHINE, "ceilings": ceilings.to_records([busy])}, tmp_path)
    assert store.bounding(recorded, folder=tmp_path) is recorded
    other = dataclasses.replace(sure, value=1.0)
    store.remember({**MACHINE, "ceilings": ceilings.to_records([COPY, other])}, tmp_path)
    assert store.bounding(recorded, folder=tmp_path)["ceilings"] == ceilings.to_records([COPY, sure])


@pytest.mark.parametrize(
    "damage",
    [
        {"value": "fast"}, {"value": None}, {"value": float("nan")}, {"value": True}, {"id": 3},
        {"samples": 1.5}, {"at": []}, {"series": {}}, {"device": "0"},
    ],
)  # fmt: skip
def test_a_damaged_record_is_named(damage):
    record = ceilings.to_records([COPY])[0] | damage
    with pytest.raises(MachineFileError, match=f"`{next(iter(damage))}`"):
        ceilings.from_machine({"ceilings": [record]})


def test_fields_of_another_version_are_passed_over():
    record = ceilings.to_records([COPY])[0] | {"datasheet": {"value": 4.8e12}}
    assert ceilings.from_machine({"ceilings": [record]}) == [COPY]
