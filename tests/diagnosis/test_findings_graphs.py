"""Launches of what the compiler gave up, and of what it broke: signals by hand, programs, a recording."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

import fathom
from fathom.diagnosis.signals import (
    Broken,
    Compiled,
    Eager,
    Recompiled,
    Signal,
)
from fathom.sounding.raw.importer import import_raw
from faults.kept import take
from tests.support.findings_fakes import compute, idle, raised, signals, work
from tests.support.findings_read import read
from tests.support.paths import RECORDINGS
from tests.support.probe_programs import launch


def test_compiled_functions_that_go_on_within_another_are_a_broken_graph():
    known = {"step_idle_ms": 4.0, "step_mean_ms": 10.0}
    broken = signals([compute("a", 10.0)], host_compiled=Compiled({0: 1}, 7.0, 7.0, 3.0), **known)
    assert raised(broken, "host-graph-breaks")["host-graph-breaks"].gain_ms == 3.0
    layers = signals(
        [compute("a", 10.0)], host_compiled=Compiled({0: 1, 1: 1, 2: 1}, 24.0, 0.0, 0.0), **known
    )
    assert raised(layers, "host-graph-breaks") == {}


@pytest.mark.programs
@pytest.mark.parametrize(("how", "resumed"), [("within", 2.0), ("apart", 0.0)])
def test_what_is_behind_a_break_runs_within_what_is_before_it(tmp_path, how, resumed):
    pytest.importorskip("torch")
    run = launch(
        tmp_path, "breaks.py", how, "40", compiles=True, plan={"steps": 4, "settle": 4, "depth": "timeline"}
    )
    assert run.status == 0, run.err
    import_raw(tmp_path, tmp_path / "out.fathom")
    compiled = read(tmp_path / "out.fathom")["host.compiled"]
    assert (compiled.regions, compiled.resumed) == (3.0, resumed)
    assert (compiled.between_ms > 0) == (resumed > 0)


LAUNCHING = [compute("a", 2.0), idle("dispatching", 5.0), idle("launch latency", 3.0)]
LOOP = Broken("forward", "net.py:34", "Tensor.item(); graph break in loop", 0.9)
KINDS = ("host-graph-breaks", "host-launch-bound")


def test_launches_of_a_frame_that_the_compiler_gave_up_are_its_break():
    known = {"host_compiled": Compiled({0: 1}, 0.0, 0.0, 0.0), "step_mean_ms": 10.0, "step_idle_ms": 8.0}
    plain = raised(signals(LAUNCHING, **known), *KINDS)
    broken = raised(signals(LAUNCHING, host_given_up=[LOOP], **known), *KINDS)
    assert (set(plain), set(broken)) == ({"host-launch-bound"}, {"host-graph-breaks"})
    launching, given_up = plain["host-launch-bound"], broken["host-graph-breaks"]
    for same in ("changes", "given", "spill", "part", "claims"):
        assert getattr(given_up, same) == getattr(launching, same)
    assert given_up.source == LOOP.place
    assert LOOP.why in given_up.evidence[0].text and given_up.evidence[0].value == 90.0


@pytest.mark.parametrize(
    ("regions", "frames"),
    [
        (1.0, [LOOP]),  # the step runs something compiled
        (0.0, [replace(LOOP, share=0.2)]),  # most of it was never to be compiled
        (0.0, []),
        (0.0, Signal(None, "", "nothing was compiled")),
    ],
)
def test_launches_that_no_break_explains_stay_launches(regions, frames):
    known = {"host_compiled": Compiled({0: 1}, regions, 0.0, 0.0), "host_given_up": frames}
    assert set(raised(signals(LAUNCHING, **known), *KINDS)) == {"host-launch-bound"}


def test_a_step_that_waits_for_no_launch_has_nothing_to_gain_from_one_graph():
    known = {"host_compiled": Compiled({0: 1}, 0.0, 0.0, 0.0), "host_given_up": [LOOP]}
    assert raised(signals([compute("a", 9.9), idle("dispatching", 0.1)], **known), *KINDS) == {}


def test_launches_are_told_where_no_compiler_was_looked_for():
    assert set(raised(signals(LAUNCHING), "host-launch-bound")) == {"host-launch-bound"}


def test_a_broken_graph_names_its_reasons_with_the_most_places_first():
    places = [
        Broken("f", "net.py:3", "print"),
        Broken("f", "net.py:7", "item"),
        Broken("g", "net.py:9", "item"),
    ]
    known = {"step_idle_ms": 4.0, "step_mean_ms": 10.0, "host_breaks": places}
    given = signals([compute("a", 10.0)], host_compiled=Compiled({0: 1}, 7.0, 7.0, 3.0), **known)
    said = raised(given, "host-graph-breaks")["host-graph-breaks"].evidence[2:]
    assert [(item.text, item.value) for item in said] == [
        ("break at net.py:7: item", 2),
        ("break at net.py:3: print", 1),
    ]


GIVEN_UP = {"loop": ["looping"], "between": [], "none": [], "elsewhere": []}


@pytest.mark.programs
@pytest.mark.parametrize("how", [*GIVEN_UP, "eager"])
def test_what_dynamo_gave_up_is_told_where_the_step_runs_it(tmp_path, how):
    pytest.importorskip("torch")
    run = launch(
        tmp_path, "given_up.py", how, "40", compiles=True, plan={"steps": 4, "settle": 4, "depth": "timeline"}
    )
    assert run.status == 0, run.err
    store = import_raw(tmp_path, tmp_path / "out.fathom")
    assert store.manifest.problems == []
    given = read(tmp_path / "out.fathom")
    if how == "eager":
        assert not run.of("dynamo") and given.get("host.given_up").why.startswith("nothing was compiled")
        return
    result = given["host.given_up"]
    assert [item.function for item in result] == GIVEN_UP[how]
    assert all(item.share > 0.9 and item.place.endswith("given_up.py:15") for item in result)
    assert [item.place.rpartition(":")[2] for item in given["host.breaks"]] == ["22"] * (how == "between")
    assert (given["host.compiled"].regions > 0) == (how in ("between", "none"))


def test_a_recorded_step_of_an_uncompiled_frame_is_a_broken_graph(tmp_path):
    """An H200's: Dynamo gave up the frame that the step runs in; with another, or none, it is no cause."""
    path = take(RECORDINGS, "host.broken_graphs.faulty.2", tmp_path)
    manifest = json.loads((path / "manifest.json").read_text())
    facts = manifest["ranks"][0]["facts"]
    (frame,) = facts["compiler"]["given_up"]
    elsewhere = {**facts["compiler"], "given_up": [{**frame, "function": "elsewhere"}]}
    broken, plain, other = (
        examined_with(path, manifest, compiler) for compiler in (facts["compiler"], None, elsewhere)
    )
    assert frame["function"] == "forward" and broken[0].id == "host-graph-breaks"
    assert sum(item.id in KINDS for item in broken) == 1
    assert plain[0].id == other[0].id == "host-launch-bound"
    assert (broken[0].gain_ms, broken[0].claims) == (plain[0].gain_ms, plain[0].claims)


def examined_with(path, manifest, compiler):
    """The findings where Dynamo had told that."""
    manifest["ranks"][0]["facts"]["compiler"] = compiler
    (path / "manifest.json").write_text(json.dumps(manifest))
    return fathom.open(path).examine().findings


FULL = Recompiled("forward", "net.py:20", "self.calls == 0", times=8, limited=True)


@pytest.mark.parametrize(
    ("lookups", "regions", "frame", "finding"),
    [
        (1.0, 0.0, FULL, True),
        (1.0, 1.0, FULL, False),  # the step runs compiled code
        (0.0, 0.0, FULL, False),  # the step does not call the frame
        (1.0, 0.0, replace(FULL, times=3, limited=False), False),
    ],
)
def test_a_frame_beyond_the_limit_of_versions_is_a_recompilation(lookups, regions, frame, finding):
    compiled = Compiled({0: 8}, regions, 0.0, 0.0, lookups=lookups)
    given = signals([compute("a", 9.0)], host_compiled=compiled, host_recompiled=[frame])
    candidates = raised(given, "host-recompilation")
    assert set(candidates) == ({"host-recompilation"} if finding else set())
    if finding:
        candidate = candidates["host-recompilation"]
        assert candidate.costless and candidate.source == "net.py:20" and "a tensor" in candidate.action
        assert [(line.value, "self.calls == 0" in line.text) for line in candidate.evidence] == [
            (8.0, True), (1.0, False)
        ]  # fmt: skip


@pytest.mark.parametrize(("source", "gains"), [("net.py(33): forward", True), ("net.py(33): loss", False)])
def test_a_frame_beyond_the_limit_gains_the_savings_of_compiled_code(source, gains):
    eager = Eager(
        saved={"a": 4.0}, fusible_ms=6.0, before=50.0, after=4.0, chains=1.0, ops=(), host=0.5, source=source,
        module=None,
    )  # fmt: skip
    compiled = Compiled({0: 8}, 0.0, 0.0, 0.0, lookups=1.0)
    known = {
        "host_compiled": compiled,
        "host_recompiled": [FULL],
        "framework_fusible": eager,
    }
    given = signals([compute("a", 9.0)], kernels_work=[work("a", 9.0, "aten::tanh")], **known)
    candidate = raised(given, "host-recompilation")["host-recompilation"]
    assert [claim.ms for claim in candidate.claims] == ([4.0] if gains else [])
    assert bool(candidate.changes) == gains == (not candidate.unpredicted)


def test_compilations_up_to_the_limit_are_not_reported_beside_it():
    known = {"host_waits_ms": {"compilation": 9.0}, "host_recompiled": [FULL]}
    compiled = Compiled({0: 8}, 0.0, 0.0, 0.0, lookups=1.0)
    candidates = raised(signals([compute("a", 9.0)], host_compiled=compiled, **known), "host-recompilation")
    assert candidates["host-recompilation"].costless


@pytest.mark.parametrize(
    ("why", "number"), [("n == 3", True), ("tensor 'x' size mismatch at index 1", False)]
)
def test_repeated_compilation_names_the_frame_and_its_guard(why, number):
    frame = replace(FULL, why=why, limited=False)
    known = {"host_waits_ms": {"compilation": 9.0}, "host_recompiled": [frame]}
    given = signals([compute("a", 10.0)], host_compiled=Compiled({0: 7}, 1.0, 0.0, 0.0), **known)
    candidate = raised(given, "host-recompilation")["host-recompilation"]
    assert why in candidate.evidence[1].text and bool(candidate.action) == number


@pytest.mark.programs
def test_the_guard_of_a_program_beyond_the_limit_is_recorded(tmp_path):
    pytest.importorskip("torch")
    plan = {"steps": 4, "settle": 4, "depth": "timeline"}
    run = launch(tmp_path, "given_up.py", "limit", "60", compiles=True, plan=plan)
    assert run.status == 0, run.err
    import_raw(tmp_path, tmp_path / "out.fathom")
    given = read(tmp_path / "out.fathom")
    frame = given["host.recompiled"][0]
    assert (frame.function, frame.limited) == ("forward", True) and "self.calls ==" in frame.why
    assert given["host.compiled"].lookups == 1.0 and given["host.compiled"].regions == 0.0
