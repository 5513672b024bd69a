"""Scores say no more than checks and findings show: kept, broken, unknown, not applicable, to be read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fathom.analysis import results
from fathom.analysis.energy import priced
from fathom.analysis.results import (
    Abstained,
    Device,
    Examination,
    Finding,
    Integrity,
    LedgerRow,
    RecordingSummary,
    Step,
    StepKind,
    Where,
)
from fathom.errors import BadInputError
from fathom.machine.checks import Result, checks
from fathom.machine.price import Price
from fathom.tips import By, Evidence, Tip, chosen, of_machine, of_sounding, score

H100 = {"gpus": [{}], "host": {"container": None, "kubernetes": None, "rdma": []}}
STEP = Step(clean_ms=10.0, timeline_ms=10.0, ci_ms=None, n=20, kind="train", clean_mean_ms=10.0)


def tip(applies=(), **by) -> Tip:
    return Tip(id="os.x", title="Keep x", text="X pays.", by=By(**by), applies=applies)


def result(status: str, name: str = "kernel.turbo", weight: int = 5) -> Result:
    check = next(check for check in checks() if check.id == name)
    return Result(
        id=name,
        group=check.group,
        title=check.title,
        status=status,
        observed="as observed" if status in ("pass", "fail") else "",
        reason=None if status in ("pass", "fail") else "as abstained",
        why="",
        fix="",
        commands=[],
        needs=[],
        costs="",
        source="",
        weight=weight,
        subjects=[],
    )


def finding(kind: str, gain_ms: float | None) -> Finding:
    share = None if gain_ms is None else gain_ms / 10
    return Finding(
        id=kind,
        title="A loss",
        where=Where(),
        evidence=[results.Evidence("launches a step", 900.0, "")],
        claims=[],
        gain_ms=gain_ms,
        low_ms=gain_ms,
        high_ms=gain_ms,
        share=share,
        confidence=0.9,
        mechanism="",
        remedy="",
        check="",
    )


def examination(*findings: Finding, abstained=(), step: Step = STEP, devices=(), **more) -> Examination:
    return Examination(
        step=step,
        devices=list(devices),
        integrity=Integrity(True, []),
        input=None,
        memory=None,
        energy=None,
        findings=list(findings),
        abstained=list(abstained),
        **more,
    )


def only(evidence: Evidence, judged: Tip):
    return score(evidence, [judged]).tips[0]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("pass", "kept"),
        ("fail", "broken"),
        ("abstained", "unknown"),
        ("not_applicable", "not-applicable"),
    ],
)
def test_a_check_decides_without_a_recording(status, expected):
    scored = only(of_machine(H100, [result(status)]), tip(checks=("kernel.turbo",)))
    assert scored.status == expected
    assert scored.reason == ("as observed" if status in ("pass", "fail") else "as abstained")
    assert scored.checks == (("kernel.turbo",) if status == "fail" else ())


def test_a_finding_is_unknown_without_a_recording():
    scored = only(of_machine(H100, []), tip(findings=("host-python",)))
    assert scored.status == "unknown" and "SOUNDING" in scored.reason


def test_a_passing_check_does_not_vouch_for_a_finding_that_nobody_analysed():
    scored = only(
        of_machine(H100, [result("pass")]), tip(checks=("kernel.turbo",), findings=("host-python",))
    )
    assert scored.status == "unknown"


def test_a_finding_that_was_analysed_and_is_absent_keeps_the_tip():
    assert only(of_sounding(examination(), H100), tip(findings=("host-python",))).status == "kept"


def test_a_kind_that_was_not_analysed_is_unknown_with_its_reason():
    missing = Abstained("finding host-python", "no stacks were sampled")
    scored = only(of_sounding(examination(abstained=[missing]), H100), tip(findings=("host-python",)))
    assert (scored.status, scored.reason) == ("unknown", "no stacks were sampled")


def test_without_a_step_nothing_is_kept():
    empty = examination(step=Step(None, None, None, 0, ""))
    assert only(of_sounding(empty, H100), tip(findings=("host-python",))).status == "unknown"


def test_a_finding_breaks_the_tip_and_prices_it():
    examined = priced(examination(finding("host-python", 2.0)), Price(3.0, "USD"))
    scored = only(of_sounding(examined, H100), tip(findings=("host-python", "host-logging")))
    assert (scored.status, scored.gain_ms, scored.findings) == ("broken", 2.0, ("host-python",))
    assert scored.saves_per_day.amount == pytest.approx(0.2 * 3.0 * 24)
    assert "launches a step: 900" in scored.reason


def test_findings_of_other_kinds_of_steps_break_tips_too():
    decode = StepKind("decode", 9, 1.0, 1.0, 0.3, False, findings=[finding("host-python", 1.0)])
    scored = only(of_sounding(examination(kinds=[decode]), H100), tip(findings=("host-python",)))
    assert (scored.status, scored.gain_ms) == ("broken", 1.0)


def test_one_tip_costs_no_more_than_its_costliest_finding():
    examined = examination(
        finding("host-python", 2.0), finding("host-logging", 3.0), finding("host-python", 1.0)
    )
    assert only(of_sounding(examined, H100), tip(findings=("host-python", "host-logging"))).gain_ms == 3.0


def test_broken_tips_come_first_by_cost_and_then_by_weight():
    examined = examination(finding("host-python", 2.0), finding("host-logging", 3.0))
    heavy, light = result("fail", "kernel.turbo", 900), result("fail", "kernel.stack", 1)
    which = [
        tip(techniques=("tf32",)),
        tip(checks=("kernel.stack",)),
        tip(checks=("kernel.turbo",)),
        tip(findings=("host-python",)),
        tip(findings=("host-logging",)),
    ]
    scored = score(of_sounding(examined, H100, [heavy, light]), which)
    assert [entry.by for entry in scored.tips] == [judged.by for judged in reversed(which)]
    assert scored.counts == {"broken": 4, "unknown": 0, "to-be-read": 1, "kept": 0, "not-applicable": 0}


def test_a_technique_alone_is_to_be_read_and_says_where():
    scored = only(of_sounding(examination(), H100), tip(techniques=("tf32",)))
    assert (scored.status, scored.reason) == ("to-be-read", "fathom lab run tf32")


@pytest.mark.parametrize(
    ("machine", "condition", "applies"),
    [
        (H100, "gpu", True),
        ({"gpus": []}, "gpu", False),
        ({}, "gpu", True),  # unknown
        (H100, "several", False),
        ({"gpus": [{}, {}]}, "several", True),
        ({"gpus": [{}], "host": {"rdma": [{"name": "mlx5_0"}]}}, "several", True),
        ({"gpus": [], "host": {"rdma": [{"name": "mlx5_0"}]}}, "several", False),
        (H100, "container", False),
        ({"host": {"container": "docker"}}, "container", True),
        (H100, "training", True),  # unknown
    ],
)
def test_conditions_of_a_machine(machine, condition, applies):
    scored = only(of_machine(machine, []), tip([condition], techniques=("tf32",)))
    assert (scored.status == "to-be-read") == applies


@pytest.mark.parametrize(
    ("names", "training", "inference"),
    [
        (["train", "train+evaluation"], True, False),
        (["prefill", "decode"], False, True),
        (["train", "decode"], True, True),
        (["step"], True, True),  # unknown
    ],
)
def test_conditions_of_a_program(names, training, inference):
    kinds = [StepKind(name, 9, 1.0, 1.0, 0.5, True) for name in names]
    evidence = of_sounding(examination(kinds=kinds), H100)
    statuses = [only(evidence, tip([c], techniques=("tf32",))).status for c in ("training", "inference")]
    assert [status == "to-be-read" for status in statuses] == [training, inference]


def devices(*entries: str) -> list[Device]:
    ledger = [LedgerRow(entry, "", 1.0) for entry in entries]
    return [Device(0, "cuda:0", [], 1.0, ledger, None)]


@pytest.mark.parametrize(
    ("about", "ledger", "applies"),
    [
        ({"made_by": "run", "ranks": 1}, ["compute"], False),  # whatever else the machine has
        ({"made_by": "run", "ranks": 2}, ["compute"], True),
        ({"made_by": "run", "ranks": 1}, ["compute", "communication"], True),
        ({"made_by": "import", "ranks": 1}, ["compute"], True),  # perhaps one rank of many
    ],
)
def test_a_program_on_one_device_needs_no_advice_on_several(about, ledger, applies):
    eight = {"gpus": [{}] * 8, "host": {"rdma": []}}
    evidence = of_sounding(examination(sounding=RecordingSummary(**about), devices=devices(*ledger)), eight)
    assert (only(evidence, tip(["several"], techniques=("tf32",))).status == "to-be-read") == applies


def test_a_pod_is_judged_by_its_manifest_alone():
    shm, inside = result("not_applicable", "kubernetes.shm"), {"host": {"kubernetes": {"pod": "x"}}}
    judged = tip(["kubernetes"], checks=("kubernetes.shm",))
    assert "--manifest" in only(of_machine(inside, [shm]), judged).reason
    assert only(of_machine(H100, [shm]), judged).status == "not-applicable"
    failed = replace(shm, status="fail", observed="no volume", reason=None)
    assert only(of_machine(H100, [failed], manifest=True), judged).status == "broken"


def test_checks_that_were_not_recorded_are_unknown_and_newer_ones_too():
    judged = tip(checks=("kernel.turbo",))
    assert only(of_sounding(examination(), H100), judged).status == "unknown"
    older = of_sounding(examination(), H100, [result("pass", "kernel.stack")])
    assert "newer" in only(older, judged).reason


def test_an_unknown_area_is_refused_with_those_that_exist():
    with pytest.raises(BadInputError, match="communication"):
        chosen(["netwrok"])
