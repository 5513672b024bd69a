"""A search measures proposals, refuses and counts wrong ones, and writes the one that is proven."""

from __future__ import annotations

import io
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from fathom.errors import BadInputError
from fathom.lab import techniques
from fathom.referee import Refusal, Verdict
from fathom.report import print_ranking
from fathom.tuner import Ranking, Sandbox, Searching, search_kernels, search_technique
from tests.support.clocks import FakeClock
from tests.support.running import run_fathom

REFERENCE = """
import numpy as np

def inputs(seed):
    return np.random.default_rng(seed).standard_normal((300, 40))

def total(x):
    return np.array([sum(float(v) for v in row) for row in x])
"""
CANDIDATE = """
import numpy as np

ROWS, PASSES = 1, 1
parameters = {"ROWS": [1, 50, 300], "PASSES": [1, 2]}

def total(x):  # a second pass is wrong
    return np.concatenate([x[i : i + ROWS].sum(1) * PASSES for i in range(0, len(x), ROWS)])
"""
TIMES = {1: 0.9, 50: 0.5, 300: 0.2}


class Proofs(Sandbox):
    """Stands in for proofs: reads a candidate's values, and takes ten seconds of the clock for each."""

    def __init__(self, clock: FakeClock, proof: str = "faster") -> None:
        super().__init__()
        object.__setattr__(self, "clock", clock)
        object.__setattr__(self, "proof", proof)
        object.__setattr__(self, "seen", [])

    def prove(self, job: dict[str, Any]) -> Verdict | str:
        text = Path(job["pair"]["tuned"].rpartition(":")[0]).read_text()
        match = re.search(r"ROWS, PASSES = (\d+), (\d)", text)
        assert match is not None
        rows, passes = int(match[1]), int(match[2])
        self.clock.sleep(10)  # type: ignore[attr-defined]
        brief = job["settings"]["budget_s"] == 0
        self.seen.append((rows, passes, brief))  # type: ignore[attr-defined]
        if passes == 2:
            return Verdict("refused", None, None, [Refusal("wrong-result")], 0.01)
        kind = "faster" if brief else self.proof  # type: ignore[attr-defined]
        return Verdict(kind, TIMES[rows], None, [], 0.01)


class Computed(Sandbox):
    """Stands in for proofs: computes both forms, and takes ten seconds of the clock for each."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "clock", FakeClock())
        object.__setattr__(self, "seen", [])

    def prove(self, job: dict[str, Any]) -> Verdict | str:
        self.clock.sleep(10)  # type: ignore[attr-defined]
        path, _, name = job["pair"]["tuned"].rpartition(":")
        module = runpy.run_path(path)
        self.seen.append({parameter: module[parameter] for parameter in ("ROWS", "COLUMNS")})  # type: ignore[attr-defined]
        inputs = module["inputs"](0)
        torch.testing.assert_close(module[name](*inputs), module["at_once"](*inputs))
        return Verdict("same", 1.0, None, [], 0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "candidates").mkdir()
    (tmp_path / "candidates" / "parts.py").write_text(CANDIDATE)
    return tmp_path


def searched(folder: Path, proofs: Proofs, time_s: float = 1e3, **more: Any) -> Ranking:
    how = Searching(time_s, settings={"budget_s": 5.0}, clock=proofs.clock, **more)  # type: ignore[attr-defined]
    return search_kernels(f"{folder / 'reference.py'}:total", folder / "candidates", proofs, how)


def test_wrong_proposals_are_counted_and_the_fastest_right_one_is_proven(folder: Path) -> None:
    proofs = Proofs(FakeClock())
    best = folder / "best.py"
    ranking = searched(folder, proofs, output=best)
    found = ranking.searched  # words: ok
    assert found and (found.tried, found.wrong, found.seconds) == (6, 3, 70.0)
    assert found.winner and found.winner.choice == {"ROWS": 300, "PASSES": 1} and ranking.proven
    assert "ROWS, PASSES = 300, 1" in best.read_text()
    assert (folder / "candidates" / "parts.py").read_text() == CANDIDATE
    assert proofs.seen[0] == (1, 1, True) and proofs.seen[-1] == (300, 1, False)  # type: ignore[attr-defined]
    assert [row.verdict for row in ranking.rows] == ["faster"] * 3 + ["refused"] * 3


def test_nothing_is_written_if_no_proof_succeeds(folder: Path) -> None:
    proofs = Proofs(FakeClock(), "inconclusive")
    ranking = searched(folder, proofs, output=folder / "best.py")
    assert not ranking.proven and not (folder / "best.py").exists()
    finalists = [rows for rows, _, brief in proofs.seen if not brief]  # type: ignore[attr-defined]
    assert finalists == [300, 50, 1]


def test_the_time_ends_the_proposals(folder: Path) -> None:
    (folder / "candidates" / "fixed.py").write_text("ROWS, PASSES = 50, 1\ndef total(x): ...\n")
    proofs = Proofs(FakeClock())
    ranking = searched(folder, proofs, time_s=25)
    assert ranking.searched and ranking.searched.tried == 3
    assert {row.candidate for row in ranking.rows} == {"fixed.py", "parts.py"}
    order = [seen for seen in proofs.seen if seen[2]]  # type: ignore[attr-defined]
    assert order[:2] == [(50, 1, True), (1, 1, True)]


def test_equal_seeds_search_alike(folder: Path) -> None:
    runs = [Proofs(FakeClock()) for _ in range(3)]
    for proofs, seed in zip(runs, (3, 3, 4), strict=True):
        searched(folder, proofs, seed=seed)
    assert runs[0].seen == runs[1].seen != runs[2].seen  # type: ignore[attr-defined]


def test_the_screen_shows_the_winner_and_the_counts(folder: Path) -> None:
    console = Console(file=io.StringIO(), width=100)
    print_ranking(searched(folder, Proofs(FakeClock())), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for said in (
        "PROVEN",
        "parts.py ROWS=300 PASSES=1 takes 0.200",
        "6 proposals in 70 s, 3 of them refused",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("candidate", "output", "message"),
    [
        ("def total(x): ...", "best.py", "No candidate in .* has parameters"),
        ("A = 1\nparameters = {'B': [1]}\ndef total(x): ...", "best.py", "declares the parameter B"),
        (CANDIDATE, "reference.py", "exists; choose another name"),
        (CANDIDATE, "nowhere/best.py", "does not exist"),
    ],
)
def test_bad_input_gets_a_sentence(folder: Path, candidate: str, output: str, message: str) -> None:
    (folder / "candidates" / "parts.py").write_text(candidate)
    with pytest.raises(BadInputError, match=message):
        searched(folder, Proofs(FakeClock()), output=folder / output)


def test_a_technique_without_parameters_is_refused() -> None:
    with pytest.raises(BadInputError, match="not a technique with parameters; choose from cache-blocks"):
        search_technique("coalescing", Sandbox(), Searching())


@pytest.mark.programs
def test_wrong_values_are_refused_by_the_referee(folder: Path) -> None:
    """A real search of both values: the candidate's second pass computes something else."""
    parts = folder / "candidates" / "parts.py"
    parts.write_text(
        parts.read_text().replace("[1, 50, 300]", "[50]").replace("ROWS, PASSES = 1,", "ROWS, PASSES = 50,")
    )
    words = ("reference.py:total", "candidates", "--search", "--time", "10m", "--budget", "0", "--json")
    done = run_fathom("tune", "kernel", *words, cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    rows = json.loads(done.stdout)["rows"]
    refused = {row["choice"]["PASSES"] for row in rows if row["verdict"] == "refused"}
    right = {row["choice"]["PASSES"] for row in rows if row["ratio"]}
    assert (right, refused) == ({1}, {2})


def test_a_technique_of_the_lab_is_searched_on_a_cpu() -> None:
    """Each proposal is a file that computes the same with its values."""
    computed = Computed()
    ranking = search_technique("cache-blocks", computed, Searching(50.0, clock=computed.clock))
    parameters = techniques()["cache-blocks"].header.parameters
    choices = [row.choice for row in ranking.rows]
    assert len(choices) == 5 and all(choice and set(choice) == set(parameters) for choice in choices)
    assert all(choice in computed.seen for choice in choices)
