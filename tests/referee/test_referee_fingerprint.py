"""Results that are the same to the byte are saved once and not compared again; others are, in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fathom
from fathom.referee.child.side import fingerprint, snapshot
from fathom.referee.compare.judge import Judge
from fathom.referee.sides import Sides

QUICK: dict[str, Any] = {"budget_s": 0, "block_s": 0.01, "patience_s": 60, "fresh": "fork", "bare": False}
LEAST_ROUNDS = 6
PAIR = """
import numpy as np

def inputs(seed):
    return (np.random.default_rng(seed).standard_normal(3000),)

def plain(x):
    return {"sum": x + x, "count": len(x)}

def alike(x):
    return {"sum": 2.0 * x, "count": len(x)}

def near(x):
    return {"sum": 2.0 * x * (1 + 1e-16) + 1e-17, "count": len(x)}
"""


def printed(result: Any, *call: Any, before: Any = None) -> str | None:
    given = (call, {})
    return fingerprint(snapshot(result, given, 1), given if before is None else (before, {}))


x = np.arange(6.0)
SAME = {"a": x, "b": 3}


def test_what_is_the_same_has_the_same_fingerprint() -> None:
    assert printed({"a": x.copy(), "b": 3}, x.copy()) == printed(SAME, x.copy()) is not None


@pytest.mark.parametrize(
    "result",
    [
        {"a": x.reshape(2, 3), "b": 3},
        {"a": x.astype(np.float32), "b": 3},
        {"a": x, "c": 3},
        {"a": x, "b": 3.0},
        {"a": x, "b": 3, "c": None},
        {"a": np.where(x == 0, -0.0, x), "b": 3},
        [x, 3],
    ],
)
def test_bytes_shapes_types_and_names_count(result: Any) -> None:
    assert printed(result, x.copy()) != printed(SAME, x.copy())


def test_inputs_and_what_came_of_them_count() -> None:
    item = printed(SAME, x.copy())
    assert printed(SAME, x + 1) != item  # another call
    assert printed(SAME, x + 1, before=(x,)) != item  # it has changed its input
    assert printed(SAME, x) != item  # a view of its input


def test_what_has_no_bytes_is_never_the_same() -> None:
    assert printed({"a": x, "b": object()}, x) is None


@pytest.mark.parametrize(("candidate", "full"), [("alike", False), ("near", True)])
def test_a_proof_compares_in_full_where_bytes_differ(
    candidate: str, full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "pair.py", {"fetched": 0, "judge": 0, "same": 0}
    path.write_text(PAIR)

    def counted(owner: Any, method: str, name: str) -> None:
        original = getattr(owner, method)

        def wrapper(*args: Any, **more: Any) -> Any:
            seen[name] += 1
            return original(*args, **more)

        monkeypatch.setattr(owner, method, wrapper)

    counted(Sides, "_fetched", "fetched")
    counted(Judge, "judge", "judge")
    counted(Judge, "same", "same")
    verdict = fathom.prove(f"{path}:plain", f"{path}:{candidate}", **QUICK)
    rounds = len(verdict.timings[0].baseline.blocks)
    assert verdict.reasons == [] and rounds >= LEAST_ROUNDS
    before = seen["judge"] - full * rounds  # in the inspection
    assert (before, seen["same"]) == (3, 0 if full else rounds)
    assert {item.calls for item in verdict.agreement} == {3 + rounds}
    first_looks = 2  # at the baseline and at its reference
    assert seen["fetched"] == first_looks + 3 * before + rounds * (3 if full else 1)
