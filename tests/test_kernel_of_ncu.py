"""`fathom kernel` on what ncu measured on an H200: every crafted kernel's flaw, and its mended twin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fathom.cli.main import app
from fathom.sounding import import_ncu

MEASURED = Path(__file__).parent / "data" / "ncu" / "crafted-h200.csv"
# What names each flaw; the counters of uncoalesced stores were not among those measured here.
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
    found = json.loads(run(sounding, f"{flaw}_", "--json"))
    limits = {
        one["family"].partition(" ")[0]: {fact["rule"] for fact in one["facts"] if fact["holds"]}
        for one in found
    }
    assert set(limits) == {f"{flaw}_flawed", f"{flaw}_mended"}
    assert RULES[flaw] <= limits[f"{flaw}_flawed"]
    assert not RULES[flaw] & limits[f"{flaw}_mended"]


def test_the_page_says_what_limits_and_what_was_not_looked_at(sounding: Path) -> None:
    page = run(sounding, "bank_conflicts_flawed")
    assert "94 % of the passes over shared memory are repeats for bank conflicts" in page
    assert "Not looked at" in page


def test_what_holds_nothing_back_costs_no_blocks_and_never_fewer(sounding: Path) -> None:
    found = json.loads(run(sounding, "*", "--json"))
    blocks = [fact["value"] for one in found for fact in one["facts"] if fact["unit"] == "blocks"]
    assert len(blocks) == 2 * len(found) and min(blocks) == 0.0 < max(blocks)


def test_a_name_that_is_not_there_is_an_error_of_one_sentence(sounding: Path) -> None:
    result = CliRunner().invoke(app, ["kernel", str(sounding), "nothing-like-it"])
    assert result.exit_code == 1
