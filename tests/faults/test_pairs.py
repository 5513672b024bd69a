"""Pairs of all three sources, and whether the findings that name them distinguish their forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fathom.analysis import Abstained, Examination, Step
from fathom.analysis.results import Finding, Integrity, Where
from fathom.cli.main import app
from fathom.diagnosis import FormFindings, PairFinding, findings_in, form_findings, pair_findings
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.naming import NO_COUNTERS, NO_RULE, ROWS
from fathom.lab import Outcome, looping
from fathom.lab.recording import NotRecordedError, record_forms
from fathom.recorder import Plan
from fathom.sounding import open_store
from faults import pairs
from faults.labels import programs
from faults.telemetry import power_limit
from tests.lab.test_lab import CPU, MACHINE, SAMPLE, only, verdict
from tests.support.paths import DATA, ROOT
from tests.support.small_sounding import make

NCU = DATA / "ncu" / "crafted-h200.csv"


# All of them


def test_every_pair_is_there_and_names_kinds_that_there_are() -> None:
    result = pairs.pairs()
    count = {
        source: sum(name.startswith(source) for name in result) for source in ("lab/", "crafted/", "faults/")
    }
    assert count["crafted/"] == 10 and count["lab/"] >= 40
    assert count["faults/"] == sum(bool(program.fault.kind) for program in programs())
    assert {kind for pair in result.values() for kind in pair.findings} <= kinds().keys()
    for name, pair in result.items():
        assert bool(pair.commands) == name.startswith("faults/")
        assert pair.addressed().name


def test_programs_that_work_on_different_numbers_are_compared_by_time_alone(tmp_path: Path) -> None:
    by_name = pairs.pairs(2, "--small", metrics=tmp_path / "m.json")
    for program in programs():
        if program.fault.kind:
            pair = by_name[f"faults/{program.id}"]
            assert (pair.metrics is None) == (
                program.fault.agree is None
            ) and pair.agree == program.fault.agree
            assert pair.commands is not None
            plain, tuned = pair.commands
            assert [word for word in plain if word not in tuned] == ["faulty"]
            assert ("--metrics" in plain) == (pair.metrics is not None)


def test_a_program_of_the_suite_is_proven_as_a_whole_command(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(ROOT)
    words = ["prove", "faults/numbers/odd_width", "--small", "--steps", "2", "--budget", "0"]
    options = pairs.arguments(words)
    seen_pairs = []

    def prove_pair(pair: Any, settings: Any) -> Any:
        seen_pairs.append(pair)
        return verdict()

    monkeypatch.setattr("fathom.referee.prove_pair", prove_pair, raising=False)
    assert options.command(options) == 0 and "FASTER" in capsys.readouterr().out
    assert seen_pairs[0].name == "numbers/odd_width" and "--small" in seen_pairs[0].commands[0]
    with pytest.raises(SystemExit, match="no pair"):
        pairs.named("faults/nothing", pairs.pairs())


# The check


def test_real_counters_of_ncu_distinguish_crafted_kernels(tmp_path: Path) -> None:
    by_name = pairs.pairs()
    store = pairs.opened(NCU, tmp_path)
    for name, pair in by_name.items():
        if not name.startswith("crafted/"):
            continue
        check = pairs.check(name, pair, store, store)
        if name == "crafted/uncoalesced":  # the counters of its stores were not among those measured
            assert (check[0].plain, check[0].tuned) == (None, None) and "wasted_stores" in check[0].why
        else:
            assert all(item.names for item in check), name


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FormFindings]:
    """A device that its power limit holds back, and one that is well."""
    folder = tmp_path_factory.mktemp("devices")
    made = {
        form: power_limit.build(form, 3).write(folder / f"{form}.fathom") for form in ("faulty", "mended")
    }
    return {form: form_findings(store) for form, store in made.items()}


def test_findings_of_soundings_distinguish_forms(devices: dict[str, FormFindings]) -> None:
    well, unwell = devices["mended"], devices["faulty"]
    (result,) = pair_findings(["device-power-limit"], unwell, well)
    assert result.names and result == PairFinding("device-power-limit", True, False)
    assert pair_findings(["device-power-limit"], well, unwell) == [
        PairFinding("device-power-limit", False, True)
    ]
    assert not pair_findings(["device-power-limit"], unwell, unwell)[0].names
    assert pair_findings(["device-thermal"], unwell, well) == [PairFinding("device-thermal", False, False)]


def test_what_was_not_looked_at_is_said_and_names_nothing(devices: dict[str, FormFindings]) -> None:
    well, unwell = devices["mended"], devices["faulty"]
    counted, unruled = pair_findings(["kernels-bank-conflicts", "no-such-kind"], unwell, well)
    assert (counted.plain, counted.tuned, counted.why) == (None, None, NO_COUNTERS)
    assert (unruled.plain, unruled.why) == (None, NO_RULE)
    (blind,) = pair_findings(
        ["device-power-limit"], unwell, FormFindings(why={"device-power-limit": "no telemetry"})
    )
    assert (blind.plain, blind.tuned, blind.why, blind.names) == (True, None, "no telemetry", False)


def test_an_examination_shows_what_it_found_and_what_it_could_not_look_at() -> None:
    bare = Examination(
        step=Step(None, 1.0, None, 1, ""),
        devices=[],
        integrity=Integrity(True, []),
        input=None,
        memory=None,
        energy=None,
        findings=[Finding("host-python", "A title", Where(), [], [], *[None] * 4, 0.8, "", "", "")],
        abstained=[Abstained("finding host-launch-bound", "why"), Abstained("energy", "none")],
    )
    result = findings_in(bare)
    assert set(result.shown) == {"host-python"} and result.why["host-launch-bound"] == "why"
    assert "energy" not in result.why and "host-checkpoint" in result.clear
    assert (
        "kernels-divergence" in result.why and "kernels-divergence" not in findings_in(bare, counted=True).why
    )


def test_the_table_names_kinds_and_rules_that_there_are() -> None:
    from fathom.analysis.explaining import rules

    assert ROWS.keys() <= kinds().keys()
    assert {name for row in ROWS.values() for name in row.rules} <= rules().keys()


def test_the_script_lists_and_checks(tmp_path: Path, capsys: Any) -> None:
    options = pairs.arguments(["list", "crafted/atomics"])
    assert options.command(options) == 0
    assert capsys.readouterr().out.split() == ["crafted/atomics", "kernels-atomics"]
    for name, status, words in (("spills", 0, "not on the tuned one"), ("uncoalesced", 1, "not analysed")):
        options = pairs.arguments(["check", f"crafted/{name}", str(NCU)])
        assert options.command(options) == status and words in capsys.readouterr().out


# Recording both forms


def test_steps_hold_several_short_calls_and_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, calls = [], []
    monkeypatch.setattr(looping, "step", lambda: steps.append(len(calls)))
    monkeypatch.setattr(looping, "MOST_STEPS", 5)
    assert looping.loop(lambda x: calls.append(x), (7,), seconds=60.0) == 5
    each = [after - before for before, after in zip(steps, [*steps[1:], len(calls)], strict=True)]
    assert set(calls) == {7} and len(set(each)) == 1 and 1 <= each[0] <= looping.MOST_CALLS
    assert looping.loop(lambda x: None, (7,), seconds=-1.0) == 0


FUNCTIONS = {"plain": ":unchanged", "tuned": ":a_sample"}
FINDINGS = "findings: {device-power-limit: 1, kernels-divergence: 1}"
PLAN = Plan(depth="surface", steps=5, settle=3, step_on="mark", stop_after="recorded")


@pytest.mark.programs
def test_both_forms_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE + "\n\nimport torch\n")  # a program without it has no steps
    make(tmp_path / "out" / "a-sample.plain.fathom")  # recorded before
    said: list[str] = []
    stores = record_forms(only(path), tmp_path / "out", plan=PLAN, seconds=30, say=said.append)
    for form, store in zip(looping.FORMS, stores, strict=True):
        assert store.path == tmp_path / "out" / f"a-sample.{form}.fathom"
        assert f"a-sample: recording the {form} form" in said
        manifest = open_store(store.path).manifest
        assert manifest.ended in ("stopped", "finished") and manifest.command[-3].endswith(FUNCTIONS[form])
        assert store.table("steps").collect().height >= 5
        assert (
            pair_findings(["host-launch-bound"], form_findings(store), form_findings(store))[0].plain is None
        )


def test_a_form_that_fails_is_told(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE.replace("return x", "raise RuntimeError('no')", 1))
    with pytest.raises(NotRecordedError, match="plain form of a-sample failed"):
        record_forms(only(path), tmp_path / "out", plan=PLAN, seconds=1)


def test_the_command_records_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = [power_limit.build(form, 3).write(tmp_path / f"{form}.fathom") for form in ("faulty", "mended")]
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE.replace("proof: {latency: included}", FINDINGS))
    technique = only(path)
    from fathom.lab import run

    monkeypatch.setattr("fathom.lab.techniques", lambda: {technique.name: technique}, raising=False)
    proving = lambda wanted, **_: run(  # noqa: E731
        [technique], machine=MACHINE, at=CPU, prove=lambda *_: verdict(), folder=tmp_path
    )
    monkeypatch.setattr("fathom.lab.run", proving, raising=False)
    monkeypatch.setattr("fathom.lab.record_forms", lambda *_, **__: tuple(stores), raising=False)
    call = lambda *words: CliRunner().invoke(app, ["lab", "run", "--all", "--record", str(tmp_path), *words])  # noqa: E731
    done = call("--json")
    (row,) = json.loads(done.stdout)
    assert done.exit_code == 0 and row["soundings"] == [str(store.path) for store in stores]
    assert [(finding["kind"], finding["plain"], finding["tuned"]) for finding in row["findings"]] == [
        ("device-power-limit", True, False),
        ("kernels-divergence", None, None),
    ]
    shown = call().stdout
    assert "on the plain form, not on the tuned one" in shown and "not analysed" in shown

    def failing(*_: object, **__: object) -> None:
        raise NotRecordedError("The plain form failed.")

    monkeypatch.setattr("fathom.lab.record_forms", failing, raising=False)
    assert call("--json").exit_code == 1
    skipped = [Outcome(technique.name, "skipped", "no GPU")]
    monkeypatch.setattr("fathom.lab.run", lambda *_, **__: (item for item in skipped), raising=False)
    assert call("--json").exit_code == 0
