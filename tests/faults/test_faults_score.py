"""The figures of the suite of faults, on examinations made by hand."""

from __future__ import annotations

import json

import msgspec
import pytest

from fathom.analysis.results import Examination, Integrity, LedgerRow, Step
from faults import score, verdicts
from faults.labels import Fault, Program, builders
from faults.tables import tables


def fault(kind: str | None = "host-python", **more) -> Program:
    labels = {"expected": [kind] if kind else [], "severity": [2], "share": [0.5] if kind else []}
    return Program("host", more.pop("name", "a"), Fault(kind=kind, **labels | more))


def finding(name: str, gain: float | None = None, low: float | None = None, high: float | None = None):
    return {"id": name, "gain_ms": gain, "low_ms": low, "high_ms": high}


def case(program: Program, form: str, step_ms: float, *findings, **more) -> score.Case:
    return score.Case(program, form, 2, list(findings), step_ms, **more)


def test_the_place_of_the_true_cause():
    second = case(fault(), "faulty", 10.0, finding("host-logging", 3), finding("host-python", 2))
    assert score.place(second) == 2
    allowed = case(fault(allowed=["host-logging"]), "faulty", 10.0, *second.findings)
    assert score.place(allowed) == 1 and score.place(allowed, strictly=True) == 2
    assert score.place(case(fault(), "faulty", 10.0)) is None


def test_accuracy_counts_faulty_forms_whose_fault_can_be_seen():
    three = [finding(f"host-{n}", 1) for n in ("logging", "checkpoint", "item")]
    cases = [
        case(fault(name="first"), "faulty", 10.0, finding("host-python", 4)),
        case(fault(name="third"), "faulty", 10.0, *three[:2], finding("host-python", 1)),
        case(fault(name="fourth"), "faulty", 10.0, *three, finding("host-python", 1)),
        case(fault(name="missing"), "faulty", 10.0),
        case(fault(name="gap", known_gap="cannot be seen"), "faulty", 10.0),
        case(fault(name="first"), "mended", 5.0),
    ]
    said = score.accuracy(cases)
    assert (said["cases"], said["first"], said["third"]) == (4, 0.25, 0.5)
    assert said["not_first"] == {"host/third 2": 3, "host/fourth 2": 4, "host/missing 2": None}
    assert said["missed"] == ["host/missing 2: host-python"] and said["gaps"] == {"host/gap 2": None}


def test_false_findings_are_large_ones_without_a_fault_and_forbidden_ones_with_one():
    program = fault(forbidden=["host-logging"], allowed=["host-sync-item"])
    cases = [
        case(program, "mended", 100.0, finding("host-python", 4.0), finding("host-checkpoint", 2.0)),
        case(program, "mended", 100.0, finding("host-sync-item", 50.0), finding("device-ecc")),
        case(program, "faulty", 100.0, finding("host-logging", 10.0), finding("host-checkpoint", 10.0)),
        case(fault(None, name="tuned"), "mended", 100.0, finding("host-python", 3.0)),
    ]
    result = [
        (false_finding["form"], false_finding["finding"], false_finding["share"])
        for false_finding in score.false_findings(cases)
    ]
    assert result == [
        ("mended", "host-python", 0.04),
        ("mended", "device-ecc", None),
        ("faulty", "host-logging", 0.1),
        ("mended", "host-python", 0.03),
    ]


def test_gains_are_compared_with_the_mended_twin():
    both = fault(name="two", expected=["host-python", "host-logging"])
    cases = [
        case(fault(name="one"), "faulty", 10.0, finding("host-python", 5.0, 3.0, 6.0)),
        case(fault(name="one"), "mended", 6.0),
        case(both, "faulty", 20.0, finding("host-python", 6, 5, 7), finding("host-logging", 3, 2, 4)),
        case(both, "mended", 10.0),
        case(fault(name="nothing"), "faulty", 10.0, finding("host-python", 5.0, 4.0, 6.0)),
        case(fault(name="nothing"), "mended", 9.9),
        case(fault(name="silent"), "faulty", 10.0),
        case(fault(name="silent"), "mended", 5.0),
        case(fault(name="alone"), "faulty", 10.0, finding("host-python", 5.0, 4.0, 6.0)),
    ]
    item, two, nothing, silent = score.gains(cases)
    assert (item.realised_ms, item.inside, item.width) == (4.0, True, 0.75)
    assert item.error == pytest.approx(0.25) and item.labelled == 0.5
    assert (two.predicted_ms, two.low_ms, two.high_ms, two.faults) == (9, 7, 11, 2)
    assert two.error == pytest.approx(-0.1) and two.inside
    said = score.prediction([item, two, nothing, silent])
    assert said["cases"] == 2 and said["error"] == pytest.approx(0.175)
    assert said["coverage"] == 1.0 and said["width"] == pytest.approx((0.75 + 0.4) / 2)
    assert said["cost_nothing_here"] == ["host/nothing 2"] and said["not_predicted"] == ["host/silent 2"]


def test_an_outcome_outside_its_interval_counts_against_coverage():
    cases = [
        case(fault(), "faulty", 10.0, finding("host-python", 2.0, 1.0, 3.0)),
        case(fault(), "mended", 5.0),
    ]
    assert score.prediction(score.gains(cases))["coverage"] == 0.0


def test_confusion_counts_first_findings_of_every_form():
    program = fault(allowed=["host-sync-item"])
    cases = [
        case(program, "faulty", 10.0, finding("host-sync-item", 5), finding("host-logging", 4)),
        case(program, "faulty", 10.0, finding("host-python", 0.1)),
        case(program, "mended", 10.0),
        case(fault(None), "mended", 10.0, finding("host-python", 5.0)),
    ]
    assert score.confusion(cases) == {
        "(nothing)": {score.NOTHING: 1, "host-python": 1},
        "host-python": {"host-logging": 1, score.NOTHING: 1},
    }


def test_bars_are_met_or_not_or_not_measured():
    nothing = score.score([])
    assert {bar["met"] for bar in nothing["bars"].values()} == {None}
    slow, quick = {"host": 5.0, "memory": 5.0}, {"memory": 5.0}
    right = [
        case(fault(), "faulty", 10.0, finding("host-python", 5.0, 4.5, 5.5), bound="host", by_bound=slow),
        case(fault(), "mended", 5.0, bound="memory", by_bound=quick),
    ]
    assert {bar["met"] for bar in score.score(right)["bars"].values()} == {True}
    two = finding("host-logging", 5.0), finding("host-python", 1.0, 0.0, 4.0)
    wrong = [
        case(fault(), "faulty", 10.0, *two, bound="input", by_bound=slow),
        case(fault(), "mended", 5.0, finding("host-logging", 1.0), bound="memory", by_bound=quick),
    ]
    said = score.score(wrong)["bars"]
    assert {name for name, bar in said.items() if bar["met"] is False} == set(said) - {"third"}


def ledger(**ms: float) -> list[LedgerRow]:
    bounds = {"memory": "hbm", "compute": "matmul.bf16"}
    rows = {"launch": "idle: dispatching", "input": "idle: input", "gc": "idle: gc", "copy": "copy"}
    return [
        LedgerRow(rows.get(name, "compute"), "", value, bound=bounds.get(name, ""))
        for name, value in ms.items()
    ]


def test_a_ledger_is_summed_by_bound():
    said = verdicts.by_bound(ledger(memory=1, compute=2, unknown=3, launch=4, input=5, gc=6, copy=7))
    known = {"memory": 1, "compute": 2, "device": 3, "launch": 4, "input": 5, "host": 6, "copy": 7}
    assert said == known


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"memory": 6.0, "compute": 1.0, "launch": 3.0}, {"memory"}),
        ({"memory": 3.0, "compute": 2.5, "launch": 3.0}, {"memory", "compute"}),
        ({"memory": 3.0, "compute": 1.0, "launch": 3.0}, {"memory", "launch"}),
        ({"device": 3.0, "": 9.0}, {"memory", "compute", "unknown"}),
        ({"input": 3.0, "host": 1.0}, {"input"}),
    ],
)
def test_what_bounds_a_ledger_is_its_largest_side_and_what_ties_with_it(entries, expected):
    assert verdicts.right(entries) == expected


def test_a_fault_bounds_its_program_if_it_costs_more_than_what_else_does():
    twin = {"memory": 10.0, "launch": 2.0}
    assert verdicts.right_of_fault(fault("input-collate"), twin, 30.0) == {"input"}
    assert verdicts.right_of_fault(fault("input-collate"), twin, 1.0) == {"memory"}
    assert verdicts.right_of_fault(fault("host-launch-bound"), twin, 7.0) == {"launch", "memory"}
    assert verdicts.right_of_fault(fault("kernels-divergence"), {"device": 9.0}, 1.0) == {"compute", "memory"}


def test_verdicts_are_judged_by_both_forms():
    cases = [
        case(fault(), "faulty", 30.0, bound="host", by_bound={"host": 20.0, "memory": 10.0}),
        case(fault(), "mended", 10.0, bound="compute", by_bound={"memory": 10.0}),
        case(fault(name="alone"), "faulty", 10.0, bound="host", by_bound={"memory": 10.0}),
        case(fault(name="no ledger"), "faulty", 10.0),
    ]
    said = verdicts.verdicts(cases)
    assert (said["cases"], said["verdict"]) == (3, pytest.approx(2 / 3))
    assert said["wrong_verdicts"] == {"host/a 2 mended": ["compute", ["memory"]]}


def test_synthetic_recordings_are_counted_separately():
    builder = next(item for item in builders() if item.name == "thermal")
    said = score.score([score.Case(builder, "faulty", 2, [finding("device-thermal", 4.0)], 20.0)])
    assert said["recordings"] == 0 and said["accuracy"]["cases"] == 0
    assert said["synthetic"]["accuracy"]["first"] == 1.0


def test_tables_name_what_went_wrong_and_are_plain_json_before():
    wrong = [
        case(fault(), "faulty", 10.0, finding("host-logging", 5.0), finding("host-python", 1.0, 0.5, 4.0)),
        case(fault(), "mended", 5.0, finding("host-checkpoint", 1.0)),
        case(fault(name="gap", known_gap="cannot be seen"), "faulty", 10.0),
    ]
    text = tables(json.loads(json.dumps(score.score(wrong))))
    for word in ("NOT met", "host-checkpoint, 20% of the step", "host/gap 2: missing", "host/a 2: 2", "5.00"):
        assert word in text


def test_an_examination_and_its_json_make_the_same_case():
    step = Step(clean_ms=5.0, timeline_ms=6.0, ci_ms=None, n=20, kind="train", clean_mean_ms=5.5)
    examination = Examination(
        step=step,
        devices=[],
        integrity=Integrity(True, []),
        input=None,
        memory=None,
        energy=None,
        findings=[finding("host-python", 1.0)],
    )
    plain = json.loads(msgspec.json.encode(examination))
    assert score.case_of(fault(), "faulty", 2, examination) == score.case_of(fault(), "faulty", 2, plain)
    assert score.case_of(fault(), "faulty", 2, examination).step_ms == 5.5
    examination.step.clean_mean_ms = None
    assert score.case_of(fault(), "faulty", 2, examination).step_ms == 5.0


def test_the_picture_shows_every_gain_that_was_predicted_and_came_true():
    from xml.etree import ElementTree

    from faults.scatter import picture

    gain = {"case": "a <b> 2", "predicted_ms": 2.0, "low_ms": 1.0, "high_ms": 3.0, "realised_ms": 2.5}
    others = [{**gain, "predicted_ms": None}, {**gain, "realised_ms": -1.0}]
    drawn = ElementTree.fromstring(picture([gain, *others]))
    points = [item for item in drawn.iter() if item.tag.endswith("circle")]
    assert [point[0].text for point in points] == ["a <b> 2: predicted 2.00 ms, realised 2.50 ms"]
