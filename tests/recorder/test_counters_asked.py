"""Counters that were asked for by name are not left out in silence: qualified first, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fathom.gauges import counters as gauge
from fathom.gauges import keeping
from fathom.gauges.counters import NoCountersError
from fathom.machine import MachineFileError
from fathom.recorder import Plan, record
from fathom.recorder import counters as asked
from fathom.recorder.counters import NotSampledError, unsampled
from fathom.recorder.session import SelfRecording
from tests.support.running import run_fathom

QUALIFIED = {"groups": [["a"]], "refused": {}, "interval_ns": 20_000, "trigger": "time", "driver": "580"}
GPU = {"index": 0, "uuid": "GPU-1", "mig": False}


def machine(**more: Any) -> dict[str, Any]:
    return {
        "gpus": [GPU],
        "why_no_gpu": None,
        "versions": {"driver": "580"},
        "fingerprint": "f" * 16,
        **more,
    }


@pytest.fixture(autouse=True)
def _gpu_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fathom.machine.counters.may_count", lambda root: None)
    monkeypatch.setattr(asked, "_others", lambda *_: [])


# before the launch


def recorded(folder: Path, depth: str, here: dict[str, Any]) -> list[str]:
    """The messages about a program that leaves a file where it was started."""
    said: list[str] = []
    command = ["sh", "-c", f"touch {folder}/started"]
    record(command, Plan(depth), folder / "o.fathom", machine=lambda: here, say=said.append)
    return said


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (machine(), "fathom machine measure --only counters"),
        (machine(counters={**QUALIFIED, "driver": "590"}), "fathom machine measure --only counters"),
        (machine(why_no_counters="the reason"), "the reason"),
        (machine(gpus=[]), "there is no GPU"),
    ],
)
def test_by_name_the_program_is_not_started_without_them(tmp_path: Path, here: Any, words: str) -> None:
    with pytest.raises(NotSampledError, match=words) as error:
        recorded(tmp_path, "counters", here)
    assert "not started" in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("depth", "abstained"), [("auto", 1), ("timeline", 0)])
def test_not_by_name_the_program_runs_and_the_report_has_the_reason(tmp_path, depth, abstained) -> None:
    assert not any("counters" in line for line in recorded(tmp_path, depth, machine()))
    end = json.loads((tmp_path / "o.fathom" / "raw" / "end.json").read_text())
    assert (tmp_path / "started").exists()
    assert sum(absence["what"] == "counters" for absence in end["abstained"]) == abstained


def test_a_program_without_a_counter_burst_is_reported_at_the_end(tmp_path: Path) -> None:
    said = recorded(tmp_path, "counters", machine(counters=QUALIFIED))
    assert (tmp_path / "started").exists()
    assert [line for line in said if "no hardware counters were sampled" in line and "more" in line]
    plan = json.loads((tmp_path / "o.fathom" / "raw" / "plan.json").read_text())
    assert plan["counters"]["groups"] == [["a"]]


def test_within_a_process_nothing_is_recorded_without_them(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("fathom.recorder.session.known_machine", machine)
    monkeypatch.delenv("FATHOM_RAW", raising=False)
    with pytest.raises(NotSampledError):
        SelfRecording(tmp_path / "o.fathom", Plan("counters"))
    assert list(tmp_path.iterdir()) == []
    kept = tmp_path / "o.fathom" / "manifest.json"
    kept.parent.mkdir()
    kept.touch()
    with pytest.raises(NotSampledError):
        SelfRecording(kept.parent, Plan("counters"), replace=True)
    assert kept.exists()


def test_the_command_says_so_and_fails(tmp_path: Path) -> None:
    words = [
        "run",
        "--raw",
        "--no-measure",
        "--depth",
        "counters",
        "-o",
        "o.fathom",
        "--",
        "touch",
        "started",
    ]
    done = run_fathom(*words, cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 125 and "Traceback" not in done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("fathom: Hardware counters cannot be sampled, so the program was not started: ")
    assert list(tmp_path.iterdir()) == []


# the records of a program


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "more"),
        (['{"t": "note", "what": "counters", "text": "a reason"}'], "a reason"),
        (['{"t": "note", "what": "settle", "text": "else"}', '{"t": "note", "what": "coun'], "more"),
        (["\x00\xff", '["note"]', '"note"', '{"t": "note", "what": "counters", "text": null}'], "more"),
    ],
)
def test_why_nothing_was_sampled(tmp_path: Path, lines: list[str], words: str) -> None:
    (tmp_path / "proc-1.jsonl").write_text("\n".join(lines), encoding="latin-1")
    (tmp_path / "samples-1-1.bin").touch()
    assert words in (unsampled(tmp_path) or "")
    (tmp_path / "samples-1-2.bin").write_bytes(b"x")
    assert unsampled(tmp_path) is None


# qualified before it


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(keeping, "_with_ceilings", lambda *_: machine())
    monkeypatch.setattr("fathom.gauges.counters.parent.installed", lambda: "13.4.0")
    return lines


def completed(said: list[str], counters: bool = False) -> dict[str, Any]:
    return keeping.completed(lambda _: ([], []), said.append, counters)


def test_missing_qualification_runs_with_one_line(said, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("FATHOM_HOME", str(tmp_path))
    monkeypatch.setattr(gauge, "qualify", lambda machine: QUALIFIED, raising=False)
    assert completed(said, counters=True)["counters"] == QUALIFIED
    assert len(said) == 1 and "once" in said[0] and "--no-measure" in said[0]
    assert "counters" not in completed(said)


def test_the_obstacle_is_kept_as_the_reason(said, monkeypatch) -> None:
    def fails(machine: Any) -> Any:
        raise NoCountersError("the reason")

    monkeypatch.setattr(gauge, "qualify", fails, raising=False)
    assert completed(said, counters=True)["why_no_counters"] == "the reason"


def test_counters_that_cannot_be_remembered_are_sampled_all_the_same(said, monkeypatch) -> None:
    def full(*_: Any) -> Any:
        raise MachineFileError("no room")

    monkeypatch.setattr(gauge, "qualify", lambda machine: QUALIFIED, raising=False)
    monkeypatch.setattr(gauge, "keep_counters", full, raising=False)
    assert completed(said, counters=True)["counters"] == QUALIFIED
    assert said[-1] == "no room"
