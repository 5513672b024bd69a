"""Dynamo's counters as the probe reads them, in the forms of several versions of torch."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from fathom.probe import dynamo

UTILS = "torch._dynamo.utils"
CHAINED = """Unsupported Tensor.item()
  Explanation: none of it is traced

*** While handling this graph break, another graph break occurred: ***

graph break in loop
  Hint: none"""


def compilation(name: str = "forward", compiled: bool = True, **more: Any) -> SimpleNamespace:
    code = {"co_filename": "/net.py", "co_firstlineno": 3, "co_name": name}
    return SimpleNamespace(**code, has_guarded_code=compiled, **more)


def loaded(monkeypatch, *compilations: SimpleNamespace, **more: Any) -> defaultdict[str, Counter]:
    """Dynamo's module as it would be, with its counters."""
    counters: defaultdict[str, Counter] = defaultdict(Counter)
    counters["frames"]["total"] = 2
    known = {"counters": counters, "get_compilation_metrics": lambda: list(compilations), **more}
    monkeypatch.setitem(sys.modules, UTILS, SimpleNamespace(**known))
    return counters


def test_a_program_that_compiles_nothing_has_nothing_to_tell(monkeypatch):
    monkeypatch.delitem(sys.modules, UTILS, raising=False)
    assert dynamo.counted() is None
    assert UTILS not in sys.modules
    loaded(monkeypatch).clear()
    assert dynamo.counted() is None


def test_unchanged_counts_are_not_reported_twice(monkeypatch):
    counters = loaded(monkeypatch)
    assert dynamo.counted(before=2) is None
    counters["frames"]["total"] += 1
    assert dynamo.counted(before=2) is not None


def test_reading_leaves_the_counters_as_they_are(monkeypatch):
    counters = loaded(monkeypatch)
    before = {name: dict(counts) for name, counts in counters.items()}
    said = dynamo.counted()
    assert said is not None and (said["frames"], said["graphs"], said["reasons"]) == (2, 0, [])
    assert {name: dict(counts) for name, counts in counters.items()} == before


def test_a_partially_loaded_module_is_read_as_far_as_possible(monkeypatch):
    monkeypatch.setitem(sys.modules, UTILS, SimpleNamespace())
    assert dynamo.counted() is None
    monkeypatch.setitem(sys.modules, UTILS, SimpleNamespace(counters={"frames": Counter(total=1)}))
    said = dynamo.counted()
    assert said is not None and said["breaks"] == said["given_up"] == []


def test_reasons_are_one_line_each_the_commonest_first(monkeypatch):
    counters = loaded(monkeypatch)
    counters["graph_break"] = Counter({"print": 1, "print\n  Hint": 1})
    counters["unimplemented"] = Counter({CHAINED: 2, "x" * 5000: 1})
    said = dynamo.counted()
    assert said is not None
    assert said["reasons"][:2] == [["Unsupported Tensor.item(); graph break in loop", 2], ["print", 1]]
    assert len(said["reasons"]) == 3 and len(said["reasons"][2][0]) == dynamo.LONGEST


@pytest.mark.parametrize(
    ("failed", "at", "why"),
    [
        (
            {
                "fail_reason": CHAINED,
                "fail_user_frame_filename": "/net.py",
                "fail_user_frame_lineno": 5,
            },
            ["/net.py", 5],
            "Unsupported Tensor.item(); graph break in loop",
        ),
        ({"fail_reason": None, "fail_user_frame_filename": None, "fail_user_frame_lineno": None}, None, None),
        ({}, None, None),
    ],
)
def test_a_skipped_frame_has_place_and_reason_if_torch_gives_them(monkeypatch, failed, at, why):
    loaded(monkeypatch, compilation(compiled=False, **failed), compilation("other"))
    said = dynamo.counted()
    assert said is not None
    frame = {"file": "/net.py", "line": 3, "function": "forward"}
    assert said["given_up"] == [{**frame, "at": at, "why": why}]


def test_a_frame_with_one_compiled_version_was_not_given_up(monkeypatch):
    loaded(monkeypatch, compilation(), compilation(compiled=False, fail_reason="recompile limit"))
    said = dynamo.counted()
    assert said is not None and said["given_up"] == []


def test_other_metrics_are_not_frames(monkeypatch):
    backward = SimpleNamespace(compile_id="0/0")
    loaded(monkeypatch, backward, SimpleNamespace(co_filename=None, has_guarded_code=None))
    said = dynamo.counted()
    assert said is not None and said["given_up"] == []


def test_a_break_names_its_innermost_line_and_lists_are_bounded(monkeypatch):
    def place(number: int) -> SimpleNamespace:
        return SimpleNamespace(filename="/net.py", lineno=number, name="forward")

    broke = [SimpleNamespace(reason="print\nmore", user_stack=[place(1), place(n)]) for n in range(100)]
    loaded(monkeypatch, graph_break_reasons=[broke[0], *broke, SimpleNamespace(reason="no stack")])
    said = dynamo.counted()
    assert said is not None and len(said["breaks"]) == dynamo.MOST
    assert [item["line"] for item in said["breaks"]] == list(range(dynamo.MOST))
    assert said["breaks"][0] == {"file": "/net.py", "line": 0, "function": "forward", "why": "print"}


@pytest.mark.parametrize("versioned", [False, True])
def test_the_failed_guards_of_a_frame_give_its_number_of_recompilations(monkeypatch, versioned):
    """At its n-th recompilation a frame reports a guard for each of its n versions."""

    def guard(version: int) -> str:
        text = f"self.calls == {version}       # self.calls += 1 (HINT: use a tensor)\nUser stack trace:"
        return f"0/{version}: {text}" if versioned else text

    forward, other = compile("0", "/net.py", "eval"), compile("1", "/other.py", "eval")
    failed = [guard(version) for latest in range(8) for version in range(latest + 1)]
    loaded(monkeypatch, guard_failures={other: ["tensor 'x' size mismatch"], forward: failed})
    monkeypatch.setitem(sys.modules, "torch._dynamo.config", SimpleNamespace(cache_size_limit=8))
    said = dynamo.counted()
    assert said is not None
    frames = [(frame["file"], frame["times"], frame["limited"], frame["why"]) for frame in said["recompiled"]]
    assert frames == [
        ("/net.py", 8, True, "self.calls == 0"), ("/other.py", 1, False, "tensor 'x' size mismatch")
    ]  # fmt: skip
