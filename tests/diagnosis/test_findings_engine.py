"""The engine: claims that share nothing, gains by replay, order, and rules that fail."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.analysis import Abstained
from fathom.analysis.replay import Gain
from fathom.analysis.results import Trial, Where
from fathom.diagnosis.engine import findings
from fathom.diagnosis.engine.claims import Sized, disjoint, in_clean
from fathom.diagnosis.engine.predict import MOST, predict
from fathom.diagnosis.grouping import listed
from fathom.diagnosis.rules import Candidate, Claim, Evidence, Rule
from fathom.diagnosis.signals import Signals, UnknownSignalError
from tests.support.findings_fakes import AddingReplay, compute, idle, signals

ROWS = [("compute", "a"), ("compute", "b"), ("idle: python", ""), ("idle: launch latency", "")]
amounts = st.floats(0, 50, allow_nan=False)
claims = st.lists(
    st.builds(lambda row, ms: Claim(*row, ms), st.sampled_from([*ROWS, ("copy", "no such row")]), amounts),
    max_size=4,
)
candidates = st.builds(
    lambda claimed, spill, costless: Candidate(
        "host-launch-bound", claimed, [], ("gc=0",), spill=spill, costless=costless
    ),
    claims,
    st.sampled_from([(), ("idle: python", "idle: launch latency")]),
    st.booleans(),
)


@st.composite
def sized(draw: st.DrawFn) -> Sized:
    candidate, ms, width = draw(candidates), draw(st.none() | amounts), draw(st.floats(0, 5))
    return Sized(candidate, ms, None if ms is None else ms - width, None if ms is None else ms + width)


@given(st.lists(sized(), max_size=8), st.fixed_dictionaries(dict.fromkeys(ROWS, amounts)), st.floats(0, 5))
def test_findings_share_no_time_of_a_row_and_save_no_more_than_they_claim(result, ledger, least):
    kept = disjoint(result, ledger, least)
    taken: dict[tuple[str, str], float] = defaultdict(float)
    for item in kept:
        for claim in item.candidate.claims:
            assert claim.ms > 0
            taken[claim.entry, claim.detail] += claim.ms
    assert all(ms <= ledger[row] * (1 + 1e-9) + 1e-9 for row, ms in taken.items())
    for item in kept:
        assert item.candidate.costless or item.weight >= least
        if item.ms is not None:
            assert item.low <= item.ms * (1 + 1e-9) + 1e-9
            assert item.ms <= item.high * (1 + 1e-9) + 1e-9
            if item.ms > 0:
                assert item.ms <= sum(claim.ms for claim in item.candidate.claims) * (1 + 1e-9) + 1e-9
    costly = [value.weight for value in kept if not value.candidate.costless]
    assert costly == sorted(costly, reverse=True)


def test_the_larger_gain_claims_first_and_the_other_keeps_what_is_left():
    small = Sized(Candidate("host-python", [Claim("compute", "a", 6.0)], [], ("gc=0",)), 3.0, 3.0, 3.0)
    large = Sized(Candidate("host-launch-bound", [Claim("compute", "a", 8.0)], [], ("gc=0",)), 8.0, 7.0, 9.0)
    kept = disjoint([small, large], {("compute", "a"): 10.0}, 0.1)
    assert [(item.candidate.kind, item.ms) for item in kept] == [
        ("host-launch-bound", 8.0),
        ("host-python", 1.0),
    ]
    assert [item.candidate.kind for item in disjoint([small, large], {("compute", "a"): 8.0}, 0.1)] == [
        "host-launch-bound"
    ]


def test_of_equal_gains_the_one_that_takes_more_off_the_device_comes_first():
    few = Sized(Candidate("host-python", [Claim("compute", "a", 3.0)], [], ("gc=0",)), 2.0, 1.0, 3.0)
    many = Sized(
        Candidate("kernels-unfused-norm", [Claim("compute", "b", 6.0)], [], ("gc=0",)), 2.0, 1.0, 3.0
    )
    kept = disjoint([few, many], {("compute", "a"): 9.0, ("compute", "b"): 9.0}, 0.1)
    assert [item.candidate.kind for item in kept] == ["kernels-unfused-norm", "host-python"]


def test_what_a_replayed_gain_does_not_save_is_left_to_others():
    """Copies take 6 ms, but the host lets them save 1; compiling saves the rest, and relieves the host."""
    copies = Sized(
        Candidate("kernels-transposes", [Claim("compute", "a", 6.0)], [], ("gc=0",)), 1.0, 0.5, 1.5
    )
    both = [Claim("compute", "a", 5.0), Claim("compute", "b", 4.0)]
    general = Candidate("framework-not-compiled", both, [], ("gc=0",), general=True)
    ledger = {("compute", "a"): 6.0, ("compute", "b"): 4.0}
    kept = disjoint([copies, Sized(general, 9.0, 8.0, 10.0)], ledger, 0.1)
    assert [item.candidate.kind for item in kept] == ["framework-not-compiled", "kernels-transposes"]
    assert [item.ms for item in kept] == pytest.approx([9.0, 1.0])
    assert [item.claimed for item in kept] == pytest.approx([9.0, 1.0])


def test_a_gain_claims_as_much_of_the_clean_step():
    """Profiled, the host's time is twice that of the clean step, which gains refer to."""
    spill = ("idle: python",)
    compiled = Candidate("framework-not-compiled", [], [], ("python=0.8",), spill=spill, general=True)
    every = Candidate("host-launch-bound", [], [], ("python=0",), spill=spill)
    profiled, clean = {("idle: python", ""): 10.0}, {("idle: python", ""): 5.0}
    both = [Sized(every, 4.0, 3.0, 5.0), Sized(compiled, 1.0, 0.5, 1.5)]
    kept = [in_clean(sized, profiled, clean, 6.0) for sized in disjoint(both, profiled, 0.1, clean)]
    assert [(item.candidate.kind, item.ms, item.claimed) for item in kept] == [
        ("host-launch-bound", pytest.approx(3.0), pytest.approx(3.0)),
        ("framework-not-compiled", pytest.approx(1.0), pytest.approx(1.0)),
    ]


def test_long_lists_have_each_name_once():
    assert listed(["mul", "add", "mul"]) == "mul, add, mul"
    assert listed(["mul", "add"] * 32 + ["tanh"]) == "32 × mul, 32 × add, tanh"
    assert listed(["mul"] * 2 + [f"op{k}" for k in range(7)]) == (
        "2 × mul, op0, op1, op2, op3, op4 and 2 more"
    )


def candidate(*changes: str, ms: float = 5.0, **more) -> Candidate:
    return Candidate("host-garbage-collection", [Claim("compute", "a", ms)], [], changes, doubt=0.0, **more)


def test_a_cause_without_rows_of_its_own_takes_what_others_leave():
    loop = Candidate(
        "kernels-serial-small-products", [Claim("compute", "a", 1.0)], [], spill=("idle: python",)
    )
    every = Candidate("host-launch-bound", [], [], ("python=0",), spill=("idle: python",))
    ledger = {("compute", "a"): 2.0, ("idle: python", ""): 6.0}
    kept = disjoint([Sized(every, 6.0, 5.0, 7.0), Sized(loop, 5.0, 4.0, 6.0)], ledger, 0.1)
    assert [(item.candidate.kind, item.ms) for item in kept] == [
        ("kernels-serial-small-products", 5.0),
        ("host-launch-bound", 2.0),
    ]


def test_a_part_of_a_gain_and_a_gain_beyond_another():
    gains = {("gc=0",): 2.0, ("sync=0", "gc=0"): 7.0, ("sync=0",): 6.0}

    def replayed(changes):
        return Gain(gains[changes], gains[changes] - 0.5, gains[changes] + 0.5)

    result, abstained = predict(
        [candidate("gc=0", part=0.5), candidate("gc=0", given=("sync=0",))], replayed, 20.0
    )
    assert [item.ms for item in result] == [1.0, 1.0]
    assert (result[1].low, result[1].high) == (0.5, 1.5)
    assert not abstained


def test_a_gain_that_the_device_bounds_keeps_its_interval_in_proportion():
    result, _ = predict([candidate("gc=0")], lambda _: Gain(8.0, 4.0, 9.0), 20.0, idle_ms=2.0)
    assert (result[0].low, result[0].ms, result[0].high) == (1.0, 2.0, 2.0)


def test_a_refused_prediction_leaves_the_gain_open_and_says_why():
    result, abstained = predict(
        [candidate("gc=0")], lambda _: Abstained("prediction", "the clock stood still"), 20.0
    )
    assert result[0].ms is None
    assert [absence.why for absence in abstained] == ["the clock stood still"]


def test_without_launches_the_rows_themselves_are_the_gain():
    result, _ = predict([candidate("gc=0", ms=4.0)], lambda _: None, 20.0)
    assert (result[0].low, result[0].ms, result[0].high) == (2.0, 4.0, 6.0)


def test_only_so_many_are_replayed_and_the_smallest_are_left_out():
    asked = []

    def replayed(changes):
        asked.append(changes)
        return Gain(1.0, 1.0, 1.0)

    many = [candidate(f"family:{number}=0", ms=float(number)) for number in range(1, MOST + 4)]
    result, abstained = predict(many, replayed, 50.0)
    assert len(asked) == len(result) == MOST
    assert ("family:1=0",) not in asked
    assert [absence.what for absence in abstained] == ["finding host-garbage-collection"]


def test_no_gain_exceeds_the_step_or_is_told_below_nothing():
    result, _ = predict([candidate("gc=0")], lambda _: Gain(30.0, -4.0, 90.0), 20.0)
    assert (result[0].low, result[0].ms, result[0].high) == (0.0, 20.0, 20.0)


def one_rule(*result: Candidate) -> Rule:
    return Rule(tuple({candidate.kind for candidate in result}), lambda _: result)


def test_a_rule_that_raises_is_an_abstention():
    def broken(_: Signals):
        raise ZeroDivisionError("by nothing")

    def unknown(given: Signals):
        yield given["nobody.knows"]

    chosen = [
        Rule(("host-python",), broken),
        Rule(("host-logging",), unknown),
        one_rule(candidate("python=0")),
    ]
    result, abstained = findings(signals([compute("a", 8.0), idle("python", 2.0)]), chosen)
    assert [item.id for item in result] == ["host-garbage-collection"]
    assert {absence.what: absence.why for absence in abstained} == {
        "finding host-python": "its rule failed: ZeroDivisionError: by nothing",
        "finding host-logging": "nobody.knows is not known",
    }


def test_a_finding_speaks_with_its_kinds_words_and_its_rules_figures():
    evidence = [Evidence("collections", 2.0, "ms per step")]
    item = Candidate(
        "host-garbage-collection",
        [Claim("idle: gc", "", 2.0)],
        evidence,
        ("gc=0",),
        source="train.py(7)",
        doubt=0.0,
    )
    given = signals([compute("a", 8.0), idle("gc", 2.0)])
    result, _ = findings(given, [one_rule(item)])
    said = result[0]
    assert said.title == "Python's garbage collector stops the training thread"
    assert said.where == Where(0, "cuda:0", source="train.py(7)")
    assert (said.gain_ms, said.share) == (2.0, 0.2)
    assert said.changes == ["gc=0"]
    assert said.technique is None
    assert "gc.freeze" in said.remedy


def test_an_observed_gain_is_a_share_of_the_step_that_it_was_observed_in():
    seen = Trial("gc", 40, 5, 24.0, 20.0, 25.0, 20.0, 5.0, 4.0, 6.0, 0.2)
    given = signals([compute("a", 8.0), idle("gc", 2.0)], **{"step.trials": {"gc": seen}})
    item = Candidate("host-garbage-collection", [Claim("idle: gc", "", 2.0)], [], ("gc=0",))
    ((said,), _) = findings(given, [one_rule(item)])
    assert (said.gain_ms, said.share, said.observed) == (5.0, 0.2, True)


def test_what_cannot_reach_a_hundredth_of_the_step_is_not_even_replayed():
    ledger = [compute("a", 100.0), idle("gc", 0.5)]
    replay = AddingReplay(ledger)
    small = Candidate("host-garbage-collection", [Claim("idle: gc", "", 0.5)], [], ("gc=0",))
    assert findings(signals(ledger, step_replay=replay), [one_rule(small)])[0] == []
    assert replay.asked == []


def test_a_step_without_length_still_tells_what_costs_no_time():
    costless = Candidate("device-ecc", [], [Evidence("errors", 1.0, "errors")], costless=True)
    given = Signals({"step.ms": None})
    result, _ = findings(given, [one_rule(costless, candidate("gc=0"))])
    assert [(item.id, item.gain_ms) for item in result] == [("device-ecc", None)]


def test_unknown_changes_are_the_rules_fault_and_said_so():
    wrong = candidate("nothing=0")
    result, abstained = findings(signals([compute("a", 8.0)]), [one_rule(wrong)])
    assert [item.gain_ms for item in result] == [None]
    assert any("unknown selector" in absence.why for absence in abstained)


def test_unknown_signals_are_errors_of_their_own():
    with pytest.raises(UnknownSignalError):
        signals()["nobody.knows"]


class FixedReplay:
    def __init__(self, gain):
        self.gain = lambda changes: gain


@pytest.mark.parametrize(("low", "kept"), [(0.5, 1), (0.05, 0)])
def test_what_shows_beyond_other_causes_has_to_exceed_its_doubt(low, kept):
    class Replayed:
        def gain(self, changes):
            return Gain(3.0, 3.0, 3.0) if len(changes) == 1 else Gain(4.0, 3.0 + low, 5.0)

    ledger = [compute("a", 8.0), idle("python", 2.0)]
    beyond = candidate("python=0", given=("sync=0",))
    result, _ = findings(signals(ledger, step_replay=Replayed()), [one_rule(beyond)])
    assert len(result) == kept


@pytest.mark.parametrize(("ms", "gain"), [(3.0, 3.0), (0.01, None), (-0.1, None)])
def test_a_costless_cause_keeps_a_gain_that_is_worth_reporting(ms, gain):
    ledger = [compute("a", 8.0), idle("python", 2.0)]
    costless = Candidate("device-ecc", [Claim("compute", "a", 8.0)], [], ("all-kernels=0.5",), costless=True)
    replay = FixedReplay(Gain(ms, ms, ms))
    ((said,), _) = findings(signals(ledger, step_replay=replay), [one_rule(costless)])
    assert said.gain_ms == gain and bool(said.claims) == (gain is not None)
