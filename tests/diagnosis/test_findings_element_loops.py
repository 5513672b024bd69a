"""Loops over the elements of tensors: their signal on real recordings of ops, and their rule."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.analysis.causes import OPTIMIZER_STEP
from fathom.analysis.results import LedgerRow
from fathom.diagnosis.signals import Loop
from fathom.diagnosis.signals.loops import AGAIN, stretches_of
from fathom.diagnosis.signals.recorded import outside_closures
from fathom.sounding.raw.importer import import_raw
from tests.support.findings_fakes import compute, idle, raised, signals, work
from tests.support.findings_read import read, recorded
from tests.support.probe_programs import launch

KIND = "host-element-loop"
OPS = [LedgerRow("ops", "aten::select", 20.0, count=900.0), LedgerRow("ops", "aten::mm", 40.0, count=10.0)]


def loop(ms: float = 40.0, **more) -> Loop:
    usual = {"own": {"aten::select": 0.9}, "kernels": {}, "typical": 1.4, "source": "run.py:7"}
    return Loop(ms=ms, iterations=300.0, count=900.0, **(usual | more))


def of_processor(*loops: Loop):
    ledger = [*OPS, LedgerRow("idle: python", "", 40.0)]
    known = {"step_device": "cpu", "step_mean_ms": 50.0, "host_ops": {"aten::select": 900.0}}
    return raised(signals(ledger, **known, host_loops=list(loops)), KIND).get(KIND)


def test_a_loop_gains_most_of_its_share_of_the_mean_step():
    candidate = of_processor(loop(40.0))
    assert candidate.source == "run.py:7"
    assert 0.6 * 20 < candidate.gain_ms < 20  # 40 % of 50 ms
    claims = {(claim.entry, claim.detail): claim.ms for claim in candidate.claims}
    assert claims["ops", "aten::select"] == pytest.approx(18.0)
    assert claims["idle: python", ""] == pytest.approx(22.0)  # the rest of its 40 ms
    assert claims["ops", "aten::mm"] == 0


@pytest.mark.parametrize("more", [{"typical": 8.0}, {"typical": None}, {"largest": 1_000_000}, {"ms": 1.0}])
def test_a_loop_that_computes_or_is_short_or_unknown_is_none(more):
    assert of_processor(loop(**more)) is None


@pytest.mark.parametrize(("each_us", "raises"), [(2.0, True), (50.0, False)])
def test_on_a_gpu_the_kernels_of_the_loop_have_to_be_short(each_us, raises):
    ms = 500 * each_us / 1000
    ledger = [compute("tiny", ms), compute("gemm", 20.0), idle("dispatching", 10.0), idle("python", 10.0)]
    mine = loop(30.0, kernels={"tiny": ms}, launches=500.0)
    works = [work("tiny", ms, "aten::add"), work("gemm", 20.0, "aten::mm")]
    known = {"host_loops": [mine], "kernels_work": works, "kernels_count": 1000.0}
    result = raised(signals(ledger, **known), KIND)
    assert bool(result) == raises
    assert not raises or any(change == "python=0.575000" for change in result[KIND].changes)


def brute(codes: list[int]) -> bool:
    """Whether some sequence repeats at least AGAIN times in a row."""
    for length in range(1, len(codes) // AGAIN + 1):
        for first in range(len(codes) - AGAIN * length + 1):
            body = codes[first : first + length]
            if codes[first : first + AGAIN * length] == body * AGAIN:
                return True
    return False


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), max_size=6),
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
    st.integers(AGAIN - 3, AGAIN + 4),
    st.lists(st.integers(0, 3), max_size=6),
)
def test_stretches_are_repetitions_and_none_is_missed(before, body, times, after):
    codes = [*before, *body * times, *after]
    stretches = list(stretches_of(np.array(codes, np.int64)))
    assert bool(stretches) == brute(codes)
    for first, end, length in stretches:
        assert codes[first : end - length] == codes[first + length : end]
        assert end - first >= AGAIN * length
    ordered = sorted(stretches)
    assert all(a[1] <= b[0] for a, b in pairwise(ordered))


@pytest.mark.programs
@pytest.mark.parametrize("how", ["metric", "plain"])
def test_a_metric_in_the_closure_of_an_optimizer_is_a_loop_over_elements(tmp_path, how):
    """Three elements are read per row; the two tensors are unbound first."""
    pytest.importorskip("torch")
    run = launch(tmp_path, "closure.py", how, "60", plan={"steps": 4, "settle": 4, "depth": "timeline"})
    assert run.status == 0, run.err
    import_raw(tmp_path, tmp_path / "out.fathom")
    loops = read(tmp_path / "out.fathom")["host.loops"]
    assert [(loop.iterations, loop.count) for loop in loops] == ([(144.0, 146.0)] if how == "metric" else [])
    assert all(loop.own["aten::unbind"] == 1.0 for loop in loops)
    ops = recorded(tmp_path / "out.fathom").ops
    steps = ops.filter(pl.col("name").str.starts_with(OPTIMIZER_STEP))["id"]
    beneath = ops.filter(pl.col("parent").is_in(steps.implode()))["name"]
    assert len(beneath) and not beneath.str.contains("aten::(linear|argmax|cross_entropy_loss)").any()


def test_only_regions_with_a_backward_pass_have_a_closure():
    rows = [
        ("timeline", 1, 1, None, f"{OPTIMIZER_STEP}AdamW.step", 0, 100),
        ("timeline", 1, 2, 1, "aten::linear", 5, 15),
        ("timeline", 1, 3, 1, "autograd::engine::evaluate_function: MmBackward0", 20, 30),
        ("timeline", 1, 4, 1, "aten::_fused_adamw_", 40, 90),
        ("timeline", 2, 5, 9, f"{OPTIMIZER_STEP}AdamW.step", 0, 100),
        ("timeline", 2, 6, 5, "aten::_fused_adamw_", 40, 90),
    ]
    columns = ["phase", "burst", "id", "parent", "name", "start_ns", "end_ns"]
    ops = outside_closures(pl.DataFrame(rows, schema=columns, orient="row"))
    assert ops["parent"].to_list() == [None, None, None, 1, 9, 5]
    assert ops["start_ns"].to_list() == [30, 5, 20, 40, 0, 40]
    assert ops.columns == columns
