"""`fathom kernel` on what ncu measured on an H200: every crafted kernel's flaw, and its mended twin."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fathom.cli.main import app
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.profiled import profiled
from fathom.recorder.dive import families_of
from fathom.sounding import import_ncu
from tests.support.paths import DATA

MEASURED = DATA / "ncu" / "crafted-h200.csv"
# The finding that names each flaw; the counters of uncoalesced stores were not among those measured here.
RULES = {
    "strided": {"coalescing_loads"},
    "bank_conflicts": {"bank_conflicts"},
    "spills": {"spills"},
    "divergence": {"divergence"},
    "registers": {"occupancy", "occupancy_registers"},
    "shared_memory": {"occupancy", "occupancy_shared"},
    "tail_wave": {"tail"},
    "atomics": {"atomics"},
    "special_functions": {"special"},
}


@pytest.fixture(scope="module")
def sounding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return import_ncu([MEASURED], tmp_path_factory.mktemp("ncu") / "crafted.fathom").path


def run(*words: object) -> str:
    result = CliRunner().invoke(app, ["kernel", *map(str, words)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("flaw", sorted(RULES))
def test_a_flaw_is_found_and_not_on_its_twin(sounding: Path, flaw: str) -> None:
    document = json.loads(run(sounding, f"{flaw}_", "--json"))
    limits = {
        item["family"].partition(" ")[0]: {fact["rule"] for fact in item["facts"] if fact["holds"]}
        for item in document
    }
    assert set(limits) == {f"{flaw}_flawed", f"{flaw}_mended"}
    assert RULES[flaw] <= limits[f"{flaw}_flawed"]
    assert not RULES[flaw] & limits[f"{flaw}_mended"]


def test_the_page_says_what_limits_and_what_was_not_looked_at(sounding: Path) -> None:
    page = run(sounding, "bank_conflicts_flawed")
    assert "94 % of the passes over shared memory are repeated because of bank conflicts" in page
    assert "Not analysed" in page


KINDS = {
    "bank_conflicts": "kernels-bank-conflicts",
    "strided": "kernels-uncoalesced",
    "spills": "kernels-register-spills",
    "divergence": "kernels-divergence",
    "registers": "kernels-low-occupancy",
    "tail_wave": "kernels-wave-quantisation",
    "atomics": "kernels-atomics",
}


def command(*words: object) -> str:
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("flaw", sorted(KINDS))
def test_a_flaw_is_a_finding_with_evidence_and_no_invented_gain(sounding: Path, flaw: str) -> None:
    document = json.loads(command("findings", sounding, "--json"))
    mine = [value for value in document if value["id"] == KINDS[flaw]]
    families = {value["where"]["family"].partition(" ")[0] for value in mine}
    assert f"{flaw}_flawed" in families and f"{flaw}_mended" not in families
    for item in mine:
        assert item["evidence"] and item["remedy"] and item["claims"] == []
        assert item["gain_ms"] is None and "no step" in item["unpredicted"]
        assert 0 < item["evidence"][-1]["value"] < 100 and item["evidence"][-1]["unit"] == "%"


def test_findings_of_ncu_are_printed_and_what_was_not_looked_for_is_said(sounding: Path) -> None:
    page = command("findings", sounding)
    assert "Shared memory accesses have bank conflicts" in page and "not predicted" in page
    assert "costs no time" not in page
    report = json.loads(command("report", sounding, "--json"))
    unlooked = {
        absence["what"]: absence["why"]
        for absence in report["abstained"]
        if absence["what"].startswith("finding ")
    }
    of_steps = [kind for kind in kinds().values() if kind.group != "serving"]  # the others need requests
    assert len(unlooked) == len(of_steps) - len(set(KINDS.values()))


def test_without_its_counters_a_kind_is_abstained(tmp_path: Path) -> None:
    lines = MEASURED.read_text().splitlines()
    rows = list(csv.reader(lines))
    keep = [i for i, name in enumerate(rows[0]) if "bank_conflict" not in name and "wavefronts" not in name]
    short = tmp_path / "short.csv"
    with short.open("w", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([row[i] for i in keep] for row in rows)
    result, untold = profiled(store := import_ncu([short], tmp_path / "s.fathom"), families_of(store))
    assert "kernels-bank-conflicts" not in {item.id for item in result}
    why = {item.what: item.why for item in untold}
    assert "20 of 20 kernels have no counters for bank_conflicts" in why["finding kernels-bank-conflicts"]


def test_what_holds_nothing_back_costs_no_blocks_and_never_fewer(sounding: Path) -> None:
    document = json.loads(run(sounding, "*", "--json"))
    blocks = [fact["value"] for item in document for fact in item["facts"] if fact["unit"] == "blocks"]
    assert len(blocks) == 2 * len(document) and min(blocks) == 0.0 < max(blocks)


def test_a_name_that_is_not_there_is_an_error_of_one_sentence(sounding: Path) -> None:
    result = CliRunner().invoke(app, ["kernel", str(sounding), "nothing-like-it"])
    assert result.exit_code == 2
