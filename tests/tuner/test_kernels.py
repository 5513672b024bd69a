"""Candidates are ranked by proofs in a sandbox; wrong ones are refused, and bad input gets one sentence."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fathom.errors import BadInputError
from fathom.referee import Refusal, Verdict
from fathom.report import print_ranking
from fathom.tuner import Sandbox, rank_kernels
from fathom.tuner.kernels import ISOLATIONS, Ranked, Ranking, isolation

REFERENCE = """
import numpy as np

def inputs(seed):
    return np.random.default_rng(seed).standard_normal((64, 256))

def total(x):
    return np.array([sum(float(v) for v in row) for row in x])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "candidates").mkdir()
    return tmp_path


def add(folder: Path, name: str, body: str) -> None:
    (folder / "candidates" / f"{name}.py").write_text(f"import numpy as np\n\ndef total(x):\n    {body}\n")


class Proofs(Sandbox):
    """Stands in for proofs: verdicts by candidate and shape, one for each attempt."""

    def __init__(self, verdicts: dict[str, list[Verdict]]) -> None:
        super().__init__()
        object.__setattr__(self, "verdicts", verdicts)

    def prove(self, job: dict[str, Any]) -> Verdict | str:
        return self.verdicts[Path(job["pair"]["tuned"].rpartition(":")[0]).stem].pop(0)


def verdict(kind: str, ratio: float | None, *codes: str) -> Verdict:
    return Verdict(kind, ratio, None, [Refusal(code) for code in codes], 0.01)


def test_candidates_are_ranked_by_their_ratio_and_refused_ones_come_last(folder: Path) -> None:
    verdicts = {
        "cheats": [verdict("refused", None, "patched-timer")] * 3,
        "fast": [verdict("refused", None, "patched-timer"), verdict("faster", 0.4)],  # a busy machine
        "slow": [verdict("slower", 1.7)],
        "wrong": [verdict("refused", None, "wrong-result")],
        "fastest": [verdict("faster", 0.2)],
    }
    for name in verdicts:
        add(folder, name, "return x.sum(1)")
    ranking = rank_kernels(f"{folder / 'reference.py'}:total", folder / "candidates", Proofs(verdicts))
    order = [(Path(row.candidate).stem, row.verdict) for row in ranking.rows]
    assert order[:3] == [("fastest", "faster"), ("fast", "faster"), ("slow", "slower")]
    assert {name for name, _ in order[3:]} == {"cheats", "wrong"}


@pytest.mark.programs
def test_wrong_results_and_connections_are_refused(folder: Path) -> None:
    add(folder, "wrong", "return x[:, :-1].sum(1)")
    if isolation():
        add(folder, "calls", "import socket; socket.create_connection(('127.0.0.1', 9), 1); return x.sum(1)")
    ranking = rank_kernels(f"{folder / 'reference.py'}:total", folder / "candidates", budget_s=0.0)
    assert {row.verdict for row in ranking.rows} == {"refused"}
    says = {row.candidate: " ".join(f"{r.code} {r.detail}" for r in row.reasons) for row in ranking.rows}
    assert "result" in says["wrong.py"]
    assert "unreachable" in says.get("calls.py", "unreachable")


@pytest.mark.programs
def test_without_a_gpu_the_ranking_notes_that_nothing_was_sanitized(folder: Path) -> None:
    add(folder, "quick", "return x.sum(1)")
    ranking = rank_kernels(
        f"{folder / 'reference.py'}:total", folder / "candidates", budget_s=0.0, sanitize=True
    )
    assert "Not checked with compute-sanitizer: the pair runs on the CPU." in ranking.notes


@pytest.mark.programs
def test_memory_and_daemons_of_a_candidate_end_with_its_sandbox(folder: Path) -> None:
    add(folder, "large", "big = np.ones(1 << 31); return x.sum(1)")
    mark = f"86400.{os.getpid()}"  # seconds of sleep that nothing else on this machine waits for
    start = f"subprocess.Popen(['setsid', 'sleep', '{mark}'], stdout=-3, stderr=-3)"
    body = f"import subprocess; 'daemon' in globals() or globals().update(daemon={start}); return x.sum(1)"
    add(folder, "daemon", body)
    sandbox = Sandbox(memory_gib=8.0)
    ranking = rank_kernels(f"{folder / 'reference.py'}:total", folder / "candidates", sandbox, budget_s=0.0)
    says = {row.candidate: " ".join(r.detail for r in row.reasons) for row in ranking.rows}
    assert "allocate" in says["large.py"]
    if isolation() == ISOLATIONS[0]:
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
        assert not any(mark.encode() in line for line in lines)


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def test_the_ranking_shows_every_shape() -> None:
    shapes = {"default": verdict("faster", 0.4), "odd": verdict("same", 0.996)}
    ranking = Ranking("r.py:f", [Ranked("a.py", "faster", 0.631, shapes, [], 0.42)], False, ["A note."])
    console = Console(file=io.StringIO(), width=100)
    print_ranking(ranking, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for said in ("default 0.400 · odd 0.996", "42.0 %", "cannot be withheld here", "A note."):
        assert said in text


@pytest.mark.programs
def test_a_candidate_that_does_not_end_is_refused(folder: Path) -> None:
    add(folder, "endless", "while True: pass")
    ranking = rank_kernels(f"{folder / 'reference.py'}:total", folder / "candidates", Sandbox(limit_s=4.0))
    assert [row.verdict for row in ranking.rows] == ["refused"]
    assert re.search("did not end within 4 s", ranking.rows[0].reasons[0].detail)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("reference.py:missing", "needs the functions missing"),
        ("reference.py", "is not a function in a file"),
        ("none.py:total", "does not exist"),
        ("pipe.py:total", "not a regular file"),
        ("reference.py:total", "has no Python file with a function total"),
    ],
)
def test_bad_input_gets_a_sentence(folder: Path, reference: str, message: str) -> None:
    for pipe in (folder / "pipe.py", folder / "candidates" / "pipe.py"):
        os.mkfifo(pipe)
    with pytest.raises(BadInputError, match=message):
        rank_kernels(str(folder / reference), folder / "candidates")
