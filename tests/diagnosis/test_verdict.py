"""Verdict and account: pieces that sum to the ledger, owners, and what bounds a step."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.analysis.results import Claim, Device, Finding, LedgerRow, Step, Utilisation, Where
from fathom.analysis.work.classes import UNKNOWN, class_of
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.signals import Family, Signals
from fathom.diagnosis.verdict import conclude, limited_of
from fathom.diagnosis.verdict.pieces import STAGES
from fathom.machine.limits import Limits
from tests.support import kept_reports

PEAK = Limits(arithmetic={"matmul.bf16": 1e12})  # 1 GFLOP a millisecond
UNEXPLAINED = "unexplained"


def device(*rows: LedgerRow, mfu: float | None = 0.1) -> Device:
    used = None if mfu is None else Utilisation(mfu, mfu, None, 1.0, False, "")
    return Device(0, "cuda:0", [], sum(r.ms for r in rows), list(rows), None, utilisation=used)


def finding(kind: str, *claims: tuple[str, str, float], gain: float | None = 1.0) -> Finding:
    known = kinds()[kind]
    own = [Claim(*claim) for claim in claims]
    return Finding(kind, known.title, Where(), [], own, gain, gain, gain, 0.1, 0.9, "", known.remedy, "")


def product(ms: float, gflop: float, at_ceiling: float | None = None, again: float = 0.0) -> LedgerRow:
    row = LedgerRow("compute", "nvjet 8·128", ms, at_ceiling, bound="matmul.bf16", unit="matmul.bf16")
    row.product_flops, row.recomputed_flops = gflop * 1e9, again * 1e9
    return row


def verdict_of(result: Device, *findings: Finding, step: Step | None = None):
    step = step or Step(None, result.total_ms, None, 3, "train")
    return conclude(result, step, findings, [], PEAK)


def by_owner(result: Device, *findings: Finding) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in verdict_of(result, *findings)[1]:
        total[part.owner] = total.get(part.owner, 0.0) + part.ms
    return {owner: round(ms, 9) for owner, ms in total.items()}


def test_the_waterfall_leads_from_the_peak_to_the_step():
    rows = (
        product(4.0, 2.0, 2.0),
        LedgerRow("compute", "elementwise_kernel<add> 8·128", 3.0, 1.0, bound="hbm"),
        LedgerRow("copy", "HtoD pinned", 0.5, 0.2),
        LedgerRow("idle: input", "", 1.5),
        LedgerRow("idle: unexplained", "", 1.0),
    )
    _, parts = verdict_of(device(*rows))
    assert [(part.owner, round(part.ms, 9)) for part in parts] == [
        ("peak", 2.0),
        ("ceiling", 1.0),
        ("lead elementwise_kernel<add> 8·128", 2.0),
        ("lead nvjet 8·128", 2.0),
        ("cause HtoD pinned copies", 0.3),
        ("cause HtoD pinned copies", 0.2),
        ("cause input", 1.5),
        (UNEXPLAINED, 1.0),
    ]


def test_findings_own_what_they_claim_and_only_what_is_not_at_the_peak():
    row = product(4.0, 2.0, 2.0)
    slow = finding("kernels-no-mixed-precision", ("compute", "nvjet 8·128", 3.5))
    assert by_owner(device(row), slow) == {"peak": 2.0, "finding kernels-no-mixed-precision": 2.0}
    half = finding("kernels-transposes", ("compute", "nvjet 8·128", 1.0))
    owners = by_owner(device(row), half)
    assert owners == {"peak": 2.0, "finding kernels-transposes": 1.0, "lead nvjet 8·128": 1.0}


def test_recomputed_products_are_not_at_the_peak():
    owners = by_owner(device(product(4.0, 2.0, 2.0, again=0.5)))
    assert owners == {"peak": 1.5, "cause recomputation": 0.5, "lead nvjet 8·128": 2.0}


def test_without_a_known_mfu_nothing_counts_as_the_peak():
    owners = by_owner(device(product(4.0, 2.0, 2.0), mfu=None))
    assert owners == {"ceiling": 2.0, "lead nvjet 8·128": 2.0}


def test_work_without_a_ceiling_and_python_without_a_place_get_no_cause():
    assert by_owner(device(LedgerRow("compute", "mystery 8·128", 4.0))) == {"no ceiling": 4.0}
    idle = LedgerRow("idle: python", "", 4.0), LedgerRow("idle: gc", "generation 2", 6.0)
    assert by_owner(device(*idle)) == {UNEXPLAINED: 4.0, "cause gc": 6.0}
    assert by_owner(device(LedgerRow("idle: python", "augment (data.py:12)", 4.0))) == {"cause python": 4.0}


def test_claims_of_the_mean_step_count_by_their_share():
    result = device(LedgerRow("idle: dispatching", "", 2.0), LedgerRow("idle: python", "", 1.0))
    result.mean_ledger = [LedgerRow("idle: dispatching", "", 10.0), LedgerRow("idle: python", "", 8.0)]
    slow = finding("host-launch-bound", ("idle: dispatching", "", 5.0), ("idle: python", "", 8.0))
    assert by_owner(result, slow) == {"finding host-launch-bound": 2.0, "cause dispatching": 1.0}


def test_a_row_claimed_to_the_last_bit_leaves_no_part_of_rounding():
    """Claims of the mean step, scaled to the clean one, sum to 2e-16 ms less than the row."""
    rows = [LedgerRow("idle: python", "tokenize (run.py:3)", 1.1), LedgerRow("ops", "aten::mm", 1.0)]
    result = device(*rows)
    result.mean_ledger = [LedgerRow(row.entry, row.detail, row.ms * 3) for row in rows]
    claims = [("idle: python", "tokenize (run.py:3)", part) for part in (0.22000000000000003, 3.08)]
    assert by_owner(result, finding("host-python", *claims)).keys() == {"finding host-python", "no ceiling"}


def test_small_families_are_summed_by_class():
    large = LedgerRow("compute", "elementwise_kernel<mul> 512·128", 90.0, 90.0, bound="hbm")
    small = [LedgerRow("compute", f"reduce_kernel<sum> {n}·32", 0.4, 0.1, bound="hbm") for n in range(3)]
    odd = LedgerRow("compute", "mystery 8·128", 0.2, 0.1, bound="hbm")
    owners = by_owner(device(large, *small, odd))
    assert owners == {"ceiling": 90.4, "kernels reduction": 0.9, UNEXPLAINED: 0.1}


def test_a_family_below_its_ceiling_says_what_its_counters_show_to_limit_it():
    row = LedgerRow("compute", "add 8·128", 4.0, 1.0, bound="hbm")
    result = device(row)
    step = Step(None, 4.0, None, 3, "train")
    _, parts = conclude(result, step, [], [], PEAK, {"add 8·128": "latency"})
    assert parts[-1].part == "add 8·128 below its ceiling: limited by latency"
    known = [
        Family("a", 1.0, "instruction issue", 0.7, {"x": 1.0}),
        Family("b", 1.0, "latency", 0.4, {"x": 1.0}),
    ]
    silent = [Family("c", 1.0, "not known", None, {"x": 1.0}), Family("d", 1.0, "latency", 0.1, {})]
    signals = Signals({"kernels.counted": known + silent})
    assert limited_of(signals) == {"a": "instruction issue, 70 %", "b": "latency"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvjet_sm90_tst_128x256_64x4 2x66·384", "matmul"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop 132·384", "attention"),
        ("GammaBetaBackwardCUDAKernelTemplate<float> 8·32x32", "normalisation"),
        ("aten::addmm", "matmul"),
        ("cunn_SoftMaxBackward<LogSoftMaxBackwardEpilogue> 8192·512", "softmax and loss"),
        ("triton_poi_fused_add_mul 1024·128", "compiled"),
        ("multi_tensor_apply_kernel<FusedAdamMathFunctor> 320·512", "optimizer"),
        ("vectorized_elementwise_kernel<CUDAFunctor_add<float>> 512·128", "elementwise"),
    ],
)
def test_classes_by_name(name, expected):
    assert class_of(name).name == expected


def test_a_name_that_says_nothing_has_no_class():
    assert class_of("k7") is UNKNOWN


ROWS = st.lists(
    st.builds(
        lambda entry, number, ms, near, flops, again: LedgerRow(
            entry,
            f"family {number}",
            ms,
            near,
            bound="hbm",
            unit="matmul.bf16",
            product_flops=flops,
            recomputed_flops=flops * again,
        ),
        st.sampled_from(
            ["compute", "ops", "copy", "communication", "idle: python", "idle: input", "idle: x"]
        ),
        st.integers(0, 10**6),
        st.floats(0, 100),
        st.none() | st.floats(0, 200),
        st.floats(0, 1e12),
        st.floats(0, 1),
    ),
    max_size=8,
    unique_by=lambda row: row.detail,
)


def test_what_the_clean_step_differs_by_keeps_its_sign():
    rows = LedgerRow("compute", "add 8·128", 6.0, 6.0, bound="hbm"), LedgerRow("unattributed", "", -1.0)
    assert by_owner(device(*rows)) == {"ceiling": 6.0, UNEXPLAINED: -1.0}


@given(ROWS, st.lists(st.floats(0, 150), max_size=8))
def test_parts_sum_to_the_ledger_whatever_is_claimed(rows, wanted):
    claims = [(row.entry, row.detail, ms) for row, ms in zip(rows, wanted, strict=False)]
    result = finding("kernels-transposes", *claims)
    parts = verdict_of(device(*rows), result, finding("host-python", *claims))[1]
    assert sum(part.ms for part in parts) == pytest.approx(sum(row.ms for row in rows))
    assert all(part.ms > 0 and math.isfinite(part.ms) and part.owner for part in parts)


def test_ops_on_a_processor_that_hardly_work_are_overhead():
    """The loss of a small model, whose threads wait for each other: its bytes do not bound it."""
    rates = {"flops": 100.0, "bytes": 400.0, "flops_per_s": 1.2e4, "bytes_per_s": 5e4}
    tiny = LedgerRow("ops", "aten::nll_loss_backward", 8.0, **rates)
    assert verdict_of(device(tiny))[0].bound == "launch"
    assert by_owner(device(tiny)) == {"cause overhead": 8.0}
    large = LedgerRow("ops", "aten::add", 8.0, 4.0, flops_per_s=1e9, bytes_per_s=1e10, bound="dram")
    assert verdict_of(device(large))[0].bound == "memory"


def test_waits_bound_a_step_from_two_thirds_of_its_work_on():
    work = LedgerRow("compute", "add 8·128", 6.0, 6.0, bound="hbm")
    assert verdict_of(device(work, LedgerRow("idle: input", "", 3.9)))[0].bound == "memory"
    assert verdict_of(device(work, LedgerRow("idle: input", "", 4.1)))[0].bound == "input"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("idle: input", "input"),
        ("idle: dispatching", "launch"),
        ("idle: launch latency", "launch"),
        ("idle: gc", "host"),
        ("idle: python", "host"),
        ("idle: unexplained", "unknown"),
        ("copy", "copy"),
        ("communication", "communication"),
        ("waiting for peers", "communication"),
    ],
)
def test_every_wait_has_its_bound(entry, expected):
    assert verdict_of(device(LedgerRow(entry, "", 5.0)))[0].bound == expected


def test_an_engine_that_waits_for_its_workers_sends_the_reader_there():
    verdict, _ = verdict_of(device(LedgerRow("idle: waiting for workers", "", 5.0)))
    assert verdict.bound == "workers" and "100 %" in verdict.headline
    assert "fathom report --rank" in verdict.action and verdict.finding is None


def test_python_between_launches_is_launching_unless_it_takes_longer():
    quick = device(LedgerRow("idle: python", "", 2.0), LedgerRow("idle: dispatching", "", 3.0))
    verdict, parts = verdict_of(quick)
    assert verdict.bound == "launch"
    assert {part.owner for part in parts} == {"cause python", "cause dispatching"}
    slow = device(LedgerRow("idle: python", "", 4.0), LedgerRow("idle: dispatching", "", 3.0))
    assert verdict_of(slow)[0].bound == "host"


def test_a_finding_says_what_its_time_is_bound_by():
    idle = LedgerRow("idle: python", "", 8.0)
    result = finding("input-cpu-preprocessing", ("idle: python", "", 7.0), gain=7.0)
    verdict, _ = verdict_of(device(idle), result)
    assert (verdict.bound, verdict.finding, verdict.gain_ms) == ("input", "input-cpu-preprocessing", 7.0)
    assert verdict.action == kinds()["input-cpu-preprocessing"].action + "."


def test_time_outside_operations_is_that_of_the_ledger_where_a_loop_of_operations_is_found():
    rows = (
        LedgerRow("ops", "aten::add", 20.0),
        LedgerRow("idle: python", "", 50.0),
        LedgerRow("ops", "aten::mm", 30.0),
    )
    processor = Device(0, "cpu", [], 100.0, list(rows), None)
    loop = finding("host-element-loop", ("ops", "aten::add", 20.0), ("idle: python", "", 50.0), gain=60.0)
    verdict, _ = verdict_of(processor, loop)
    assert verdict.bound == "host" and "outside the framework's operations takes 50 %" in verdict.headline
    assert verdict.finding == "host-element-loop"


@pytest.mark.parametrize(("name", "bound"), [("cpu", "host"), ("cuda:0", "launch")])
def test_python_that_compiling_saves_is_launching_on_a_gpu_alone(name, bound):
    rows = [LedgerRow("idle: python", "main (a.py:3)", 60.0), LedgerRow("ops", "aten::mm", 40.0)]
    result = finding("framework-not-compiled", ("idle: python", "main (a.py:3)", 50.0), gain=50.0)
    verdict, _ = verdict_of(Device(0, name, [], 100.0, rows, None), result)
    assert (verdict.bound, verdict.explained_by) == (bound, ["framework-not-compiled"])


def test_a_gpu_that_waits_for_python_and_launches_waits_for_the_host():
    rows = LedgerRow("idle: python", "", 40.0), LedgerRow("idle: launch latency", "", 35.0)
    verdict, _ = verdict_of(device(*rows, LedgerRow("compute", "add 8·128", 25.0, 25.0, bound="hbm")))
    assert "waits for the host for 75 % of" in verdict.headline


def test_the_action_is_about_the_bound_unless_another_finding_saves_far_more():
    idle = LedgerRow("idle: gc", "", 8.0), LedgerRow("idle: dispatching", "", 2.0)
    launches = finding("host-launch-bound", ("idle: dispatching", "", 2.0), gain=2.0)
    for saved, expected in ((1.5, "host-garbage-collection"), (0.5, "host-launch-bound")):
        garbage = finding("host-garbage-collection", ("idle: gc", "", 8.0), gain=saved)
        verdict, _ = verdict_of(device(*idle), launches, garbage)
        assert (verdict.bound, verdict.finding) == ("host", expected)


def test_rare_long_steps_count_though_the_ledger_has_none_of_them():
    work = device(LedgerRow("compute", "add 8·128", 6.0, 6.0, bound="hbm"))
    result = finding("host-checkpoint", gain=20.0)
    step = Step(6.0, 6.0, None, 30, "train", clean_mean_ms=26.0)
    verdict, _ = verdict_of(work, result, step=step)
    assert verdict.bound == "host"
    share = "77 % of the mean step of 26 ms; the usual 6 ms step reaches 10 % MFU"
    assert verdict.headline.endswith(f"waits for the host for {share}.")
    step.clean_mean_ms = 6.0  # no step is longer: the gain is not in addition to the ledger
    assert verdict_of(work, result, step=step)[0].bound == "memory"


def test_time_without_work_requested_bounds_nothing():
    rows = LedgerRow("idle: no work", "", 50.0), LedgerRow("compute", "add 8·128", 6.0, 6.0, bound="hbm")
    verdict = verdict_of(device(*rows))[0]
    assert verdict.bound == "memory"
    assert "takes 11 % of the 56 ms step, and no work was requested for 89 %" in verdict.headline


def test_shares_are_of_the_step_that_the_sentence_names():
    said = on_a_processor(LedgerRow("idle: python", "", 7.0), LedgerRow("idle: no work", "", 0.5))
    assert "takes 93 % of the 7.5 ms step." in said


def test_calls_of_collectives_are_communication():
    called = LedgerRow("ops", "c10d::allreduce_", 5.0)
    assert by_owner(device(called)) == {"cause communication": 5.0}
    assert verdict_of(device(called, LedgerRow("idle: python", "", 2.0)))[0].bound == "communication"


def test_nothing_to_do_is_said_by_an_empty_action():
    verdict, _ = verdict_of(device(product(4.0, 2.0, 2.0)))
    assert (verdict.action, verdict.gain_ms, verdict.finding) == ("", None, None)
    costless = finding("device-ecc", gain=None)
    assert verdict_of(device(product(4.0, 2.0, 2.0)), costless)[0].finding is None


def test_without_a_ledger_there_is_no_verdict():
    step = Step(None, None, None, 0, "")
    assert conclude(None, step, [], [], None) == (None, [])
    assert conclude(device(), step, [], [], None) == (None, [])


def test_parts_of_the_account_that_kinds_name_exist():
    assert {kind.account for kind in kinds().values()} == {"", *STAGES}


@pytest.mark.parametrize("name", kept_reports.names())
def test_accounts_of_kept_reports_sum_to_the_step_and_hold_mfu(name):
    result = kept_reports.report(name)
    if not result.devices:
        pytest.skip("it has no device")
    kept = result.devices[0]
    _, parts = conclude(kept, result.step, result.findings, result.leads, kept_reports.limits(result, kept))
    step_ms = sum(row.ms for row in kept.ledger)
    assert sum(part.ms for part in parts) == pytest.approx(step_ms, rel=1e-9)
    assert all(math.isfinite(part.ms) and part.ms > 0 for part in parts)
    if kept.utilisation and kept.utilisation.mfu:
        at_peak = sum(part.ms for part in parts if part.owner == "peak")
        assert at_peak / step_ms == pytest.approx(kept.utilisation.mfu, rel=0.02)


@pytest.mark.parametrize("name", ["train_gpt", "hf_trainer", "generate", "timm_jpeg"])
def test_four_fifths_of_the_account_have_an_owner(name):
    result = kept_reports.report(name)
    kept = result.devices[0]
    _, parts = conclude(kept, result.step, result.findings, result.leads, kept_reports.limits(result, kept))
    owned = sum(part.ms for part in parts if part.owner != UNEXPLAINED)
    assert owned >= 0.8 * sum(part.ms for part in parts)


def on_a_processor(*rows: LedgerRow) -> str:
    ops = Device(0, "cpu", [], sum(row.ms for row in rows), list(rows), None)
    return verdict_of(ops)[0].headline


@pytest.mark.parametrize("op", ["aten::bernoulli_", "aten::gelu", "aten::mm"])
def test_work_of_a_processor_without_a_ceiling_has_no_known_bound(op):
    row = LedgerRow("ops", op, 8.0, None, flops_per_s=1e11, bytes_per_s=4e9, product_flops=1e9)
    said = on_a_processor(row, LedgerRow("idle: python", "", 2.0))
    assert "bound:" not in said and "does not show what bounds the 10 ms step" in said
    assert ": 80 % of it is work without a known ceiling" in said


@pytest.mark.parametrize(
    ("state", "why", "action"),
    [
        ("missing", "never measured", "Measure the machine's ceilings with fathom machine measure"),
        (
            "doubtful",
            "busy when its ceilings were measured",
            "Measure them again with fathom machine measure",
        ),
    ],
)
def test_the_verdict_says_why_no_ceiling_is_known_and_what_mends_it(state, why, action):
    ops = Device(0, "cpu", [], 10.0, [LedgerRow("ops", "aten::mm", 10.0)], None, no_ceilings=state)
    verdict = verdict_of(ops)[0]
    assert why in verdict.headline and verdict.action.startswith(action)


@pytest.mark.parametrize(
    ("unbounded", "why"),
    [
        ("its work is unknown", ": its FLOPs or bytes are unknown."),
        ("no ceiling is known for matmul.fp8", ": no ceiling is known for matmul.fp8."),
    ],
)
def test_measuring_again_is_not_advised_if_the_ceilings_are_known(unbounded, why):
    row = LedgerRow("ops", "aten::mm", 10.0, unbounded=unbounded)
    verdict = verdict_of(Device(0, "cpu", [], 10.0, [row], None, ceilings="measured"))[0]
    assert verdict.headline.endswith(why) and not verdict.action


def test_several_reasons_are_not_told_as_one():
    index = LedgerRow("ops", "aten::index", 4.0, unbounded="its work is unknown")
    sort = LedgerRow("ops", "aten::sort", 3.0, unbounded="no formula for this operator")
    mul = LedgerRow("ops", "aten::mul", 5.0, unbounded="no ceiling is known for cache")
    rows = [index, sort, mul]
    headline = verdict_of(Device(0, "cpu", [], 12.0, rows, None, ceilings="measured"))[0].headline
    assert headline.endswith(", mostly because its FLOPs or bytes are unknown.")


def test_an_op_with_most_of_the_work_without_a_ceiling_is_named():
    drop = LedgerRow("ops", "aten::bernoulli_", 6.0, unbounded="no ceiling is known for cache")
    index = LedgerRow("ops", "aten::index", 4.0, unbounded="its work is unknown")
    headline = verdict_of(Device(0, "cpu", [], 10.0, [drop, index], None, ceilings="measured"))[0].headline
    assert headline.endswith("without a known ceiling, mainly aten::bernoulli_.")


def test_a_clean_step_far_longer_than_the_profiled_ones_says_so():
    longer = LedgerRow("unattributed", "clean steps took longer", 6.0)
    said = on_a_processor(LedgerRow("ops", "aten::mm", 3.0), longer)
    assert (
        said
        == "The recording does not show what bounds the 9 ms step: 6 ms of it is not in the profiled steps."
    )


@pytest.mark.parametrize(
    ("name", "expected"), [("cpu", "Python between operations"), ("cuda:0", "idle: python")]
)
def test_a_processor_that_runs_python_is_not_called_idle(name, expected):
    rows = [LedgerRow("ops", "aten::mm", 5.0), LedgerRow("idle: python", "main (a.py:3)", 5.0)]
    _, parts = verdict_of(Device(0, name, [], 10.0, rows, None))
    assert f"{expected}: main (a.py:3)" in [part.part for part in parts]


def test_findings_that_own_the_time_of_the_bound_explain_it_whatever_the_bound_of_their_kind():
    calls = LedgerRow("ops", "aten::add", 6.0, flops_per_s=1e6, bytes_per_s=1e6)
    result = device(calls, LedgerRow("ops", "aten::mm", 3.0, 3.0, bound="matmul.fp32"), mfu=None)
    many = finding("host-python", ("ops", "aten::add", 6.0), gain=None)
    verdict = verdict_of(result, many)[0]
    assert (verdict.bound, verdict.explained_by) == ("launch", ["host-python"])
    other = finding("host-python", ("idle: python", "", 1.0))
    assert verdict_of(result, other)[0].explained_by == []
