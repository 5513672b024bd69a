"""Anomaly detection that is left on: what shows it, what it costs, and what only looks like it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from fathom.analysis.intervals import Spans
from fathom.analysis.results import LedgerRow
from fathom.diagnosis.engine import findings
from fathom.diagnosis.rules import Candidate, rules
from fathom.diagnosis.signals import Call, Work
from fathom.diagnosis.signals.lines import stored_stacks
from tests.support.findings_fakes import compute, idle, raised, signals, work
from tests.support.findings_read import read
from tests.support.timelines import Timeline, store_of

KIND = "framework-anomaly-detection"
NODE = "autograd::engine::evaluate_function: MmBackward0"
OPS = {"aten::isnan": 40.0, "aten::_is_any_true": 40.0, "aten::item": 40.0}
ANY = ("aten::_is_any_true", "aten::any")
PRODUCT = work("gemm", 12.0, NODE, "MmBackward0", "aten::mm")
WORKS = [
    PRODUCT,
    work("ne_kernel", 1.0, NODE, "aten::isnan", "aten::ne", count=40.0),
    work("reduce", 0.5, NODE, *ANY, count=40.0),
    work("reduce", 0.5, "aten::any"),
]
LEDGER = [compute("gemm", 12.0), compute("ne_kernel", 1.0), compute("reduce", 1.0)]
WAITING = idle("synchronisation", 4.0)


def reads(*above: str, ms: float = 4.0, count: float = 40.0) -> Call:
    path = (*above, "aten::item", "aten::_local_scalar_dense")
    return Call("cudaStreamSynchronize", "synchronisation", ms, count, path)


def on_device(works: list[Work] = WORKS, calls: Call = reads(NODE), **ops: float) -> Any:  # noqa: B008
    return signals([*LEDGER, WAITING], kernels_work=works, host_calls=[calls], host_ops=OPS | ops)


def on_processor(path: tuple[str, ...], **ops: float) -> dict[str, Candidate]:
    works = [
        work("aten::mm", 6.0, NODE, "MmBackward0", "aten::mm", entry="ops"),
        work("aten::any", 2.0, *path, entry="ops", source="train.py(9): main"),
        work("aten::any", 1.0, "aten::any", entry="ops"),
    ]
    ledger = [LedgerRow("ops", "aten::mm", 6.0), LedgerRow("ops", "aten::any", 3.0)]
    clean = {("ops", "aten::mm"): 6.0, ("ops", "aten::any"): 1.5}
    known = {"step_device": "cpu", "host_work": works, "host_ops": OPS | ops, "step_clean_ledger": clean}
    return raised(signals(ledger, **known), KIND)


def test_on_a_device_it_costs_its_kernels_and_the_waits_for_their_results():
    result = raised(on_device(), KIND)[KIND]
    assert {claim.detail or claim.entry: claim.ms for claim in result.claims} == {
        "ne_kernel": 1.0,
        "reduce": 0.5,
        "idle: synchronisation": 4.0,
    }
    assert {"sync=0", "family:ne_kernel=0.000000", "family:reduce=0.500000"} <= set(result.changes)
    assert [line.value for line in result.evidence] == [40.0, 1.5, 4.0] and result.part == 1.0


def test_its_waits_are_not_those_of_values_that_the_program_reads():
    chosen = [rule for rule in rules() if {KIND, "host-sync-item"} & set(rule.kinds)]
    said, _ = findings(on_device(), chosen)
    assert [item.id for item in said] == [KIND]
    assert said[0].gain_ms == pytest.approx(5.5) and said[0].low_ms < 5.5 < said[0].high_ms


def test_stacks_of_the_forward_pass_shorten_the_time_before_launches_and_are_no_launching():
    waits = [idle("dispatching", 8.0), idle("launch latency", 4.0)]
    known = {"kernels_work": WORKS, "host_calls": [reads(NODE)], "kernels_count": 100.0}
    given = signals([*LEDGER, WAITING, *waits], host_ops=OPS, host_stored_stacks=6.0, **known)
    result = raised(given, KIND)[KIND]
    assert "dispatching=0.250" in result.changes and result.evidence[-1].value == 6.0
    launching = raised(given, "host-launch-bound")["host-launch-bound"]
    assert {"dispatching=0.250", 'op:"aten::isnan"=0'} <= set(launching.given)
    off = raised(signals([compute("gemm", 12.0), *waits], kernels_count=100.0), "host-launch-bound")
    assert not any("isnan" in change for change in off["host-launch-bound"].given)


def test_hooks_may_read_values_in_the_same_place():
    result = raised(on_device(calls=reads(NODE, ms=8.0, count=80.0)), KIND)[KIND]
    assert result.part == 0.5 and result.claims[-1].ms == 2.0


def test_waits_of_others_are_not_its_own():
    result = raised(on_device(calls=reads()), KIND)[KIND]
    assert "sync=0" not in result.changes and sum(claim.ms for claim in result.claims) == 1.5


def test_on_a_processor_it_gains_what_the_clean_step_holds_of_it():
    result = on_processor((NODE, *ANY))[KIND]
    assert result.gain_ms == pytest.approx(1.0) and not result.changes
    assert [claim.ms for claim in result.claims] == [2.0] and result.source == "train.py(9): main"


HOOK = (NODE, "aten::any")  # if gradient.isnan().any(): in a hook of the program


@pytest.mark.parametrize(
    "given",
    [
        on_device(**{"aten::_is_any_true": 0.0}),
        on_device(
            [PRODUCT, work("ne_kernel", 1.0, NODE, "aten::isnan", "aten::ne"), work("reduce", 1.0, *HOOK)]
        ),
        on_device(
            [PRODUCT, work("reduce", 1.0, *ANY)], reads()
        ),  # the program calls it, outside of the engine
        on_device([PRODUCT]),
    ],
)
def test_checks_that_the_program_makes_itself_are_no_anomaly_detection(given):
    assert raised(given, KIND) == {}


@pytest.mark.parametrize("path", [HOOK, ANY])
def test_nor_are_they_on_a_processor(path):
    assert on_processor(path) == {}
    assert on_processor((NODE, *ANY), **{"aten::_is_any_true": 0.0}) == {}


def test_rows_of_a_processor_are_divided_among_the_ops_that_ask_for_them(tmp_path: Path):
    """Ten steps of 10 ms, of which a check takes 2 ms, and the same op called by the program 1 ms."""
    made, ms = Timeline(devices={}), 10**6
    made.steps(*range(0, 110 * ms, 10 * ms))
    for at in range(0, 100 * ms, 10 * ms):
        node = made.op(NODE, at + ms, at + 7 * ms)
        check = made.op("aten::_is_any_true", at + 2 * ms, at + 5 * ms, parent=node)
        made.op("aten::any", at + 2 * ms, at + 4 * ms, parent=check)
        made.op("aten::any", at + 8 * ms, at + 9 * ms)
    path = tmp_path / "checks.fathom"
    store_of(path, made)
    given = read(path)
    took = {item.path: item.ms for item in given["host.work"]}
    assert took == pytest.approx(
        {
            NODE: 3.0,
            f"{NODE} > aten::_is_any_true": 1.0,
            f"{NODE} > aten::_is_any_true > aten::any": 2.0,
            "aten::any": 1.0,
        }
    )
    (result,) = raised(given, KIND).values()
    assert result.evidence[0].value == pytest.approx(1.0) and result.gain_ms == pytest.approx(3.0)


def test_stored_stacks_take_their_share_of_the_launching_thread_s_samples():
    """Of four samples of thread 1 in a step of 20 ms, one formats its stack."""
    stacks = ["main (a.py:1);format_stack (traceback.py:9);extract (traceback.py:3)", *["main (a.py:1)"] * 4]
    samples = pl.DataFrame({"thread": [1, 1, 1, 1, 2], "stack": stacks, "phase": "timeline"})
    given = SimpleNamespace(
        read={},
        rows=lambda _: samples.lazy(),
        launching=pl.Series([1]),
        used=Spans(np.array([0]), np.array([20 * 10**6])),
        per_step_ms=lambda ns: ns / 10**6,
    )
    assert stored_stacks(given) == pytest.approx(5.0)
