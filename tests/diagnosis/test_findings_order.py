"""Rules over what follows what: runs of small products, passes of the engine and their gradients."""

from __future__ import annotations

import json
from collections import Counter

import polars as pl
import pytest

from fathom.analysis.causes import AUTOGRAD
from fathom.diagnosis.signals import Product
from fathom.diagnosis.signals.gradients import ACCUMULATE, Unused, last_used, passes_of
from fathom.diagnosis.signals.numbers import _runs
from fathom.diagnosis.signals.rows import Kernel
from tests.support.findings_fakes import H200, compute, raised, signals, work

FORWARD, BEHIND = ["aten::matmul", "aten::mm"], [f"{AUTOGRAD}: MmBackward0", "MmBackward0", "aten::mm"]


def mm(m: int, n: int, k: int, path: list[str] = FORWARD) -> Kernel:
    types = json.dumps(["c10::BFloat16"] * 2)
    return Kernel("nvjet", path, json.dumps([[m, k], [k, n]]), types)


def other(label: str = "relu", op: str = "aten::relu") -> Kernel:
    return Kernel(label, [op], "[[128, 512]]", '["c10::BFloat16"]')


PART, INPUT, WEIGHT = mm(128, 512, 512), mm(128, 512, 512, BEHIND), mm(512, 512, 128, BEHIND)


@pytest.mark.parametrize(
    ("rows", "lengths"),
    [
        ([PART] * 64, [64]),
        ([PART] * 7, []),
        ([PART, other()] * 64, []),  # layer after layer
        ([INPUT, WEIGHT] * 32, [64]),
        ([PART, other("splitKreduce_kernel", "aten::mm")] * 16, [16]),
        ([PART] * 16 + [other()] + [PART] * 16, [16, 16]),
        ([mm(128, 512, 512 + k) for k in range(64)], []),
        ([PART] * 16 + [mm(64, 64, 64)] * 2, [16]),
        ([], []),
    ],
)
def test_runs_are_of_products_with_nothing_between_them(rows, lengths):
    assert [len(run) for run in _runs(rows)] == lengths


def test_a_loop_over_small_products_costs_the_device_and_the_host():
    names = ("aten::matmul", "aten::mm")
    few = Product(128, 512, 512, 1, "bf16", work("nvjet", 0.2, *names, count=64.0))
    given = {
        "kernels_work": [few.work],
        "kernels_ceilings": H200 | {"memory": 4.6e12},
        "device_multiprocessors": 132,
        "host_ops": {"aten::matmul": 72.0},
    }
    kind = "kernels-serial-small-products"
    result = raised(signals([], kernels_product_runs=[few], **given), kind)[kind]
    assert f"op:aten::matmul={1 - 63 / 72:.6f}" in result.changes
    assert sum(claim.ms for claim in result.claims) < 0.2
    large = Product(4096, 4096, 512, 1, "bf16", work("nvjet", 0.2, *names, count=64.0))
    for runs in ([large], []):
        assert raised(signals([], kernels_product_runs=runs, **given), kind) == {}


@pytest.mark.parametrize("measured", [{}, H200 | {"memory": 4.6e12}])
def test_products_that_read_weights_at_the_bandwidth_of_memory_need_no_batch(measured):
    """Eight layers of a decoder on an H200, at 84 % of the datasheet's bandwidth with 64 tiles each."""
    layer = Product(8, 8192, 8192, 1, "bf16", work("nvjet", 0.268, "aten::linear", "aten::mm", count=8.0))
    given = {
        "kernels_work": [layer.work],
        "kernels_product_runs": [layer],
        "kernels_ceilings": measured,
        "device_multiprocessors": 132,
    }
    kind = "kernels-serial-small-products"
    for at_ceiling, known in ((0.224, False), (0.05, not measured), (None, not measured)):
        ledger = [compute("nvjet", 0.268, at_ceiling_ms=at_ceiling)]
        assert (kind in raised(signals(ledger, **given), kind)) == known


def op(name: str, start: int, shapes: str | None = None, parent: int | None = None, kind: str = "op") -> dict:
    return {
        "name": name,
        "kind": kind,
        "start_ns": start,
        "end_ns": start + 5,
        "parent": parent,
        "shapes": shapes,
    }


def gradient(at: int, *shape: int) -> list[dict]:
    outer = op(f"{AUTOGRAD}: {ACCUMULATE}", at)
    return [outer, op(ACCUMULATE, at, json.dumps([list(shape)]), parent=1)]


def test_a_pass_is_what_the_engine_does_between_the_programs_own_ops():
    first = [op("aten::linear", 0), op(f"{AUTOGRAD}: MmBackward0", 10), *gradient(20, 64, 8)]
    second = [op("aten::linear", 30), *gradient(40, 64, 8), *gradient(50, 8)]
    result = passes_of(pl.DataFrame([*first, *second, op("aten::detach", 60)]))
    assert [item.shapes for item in result] == [Counter([(64, 8)]), Counter([(64, 8), (8,)])]
    assert [(item.start_ns, item.end_ns) for item in result] == [(10, 25), (40, 55)]
    assert passes_of(pl.DataFrame([op("aten::linear", 0)])) == []


def test_the_last_gradient_in_use_is_found_from_the_loss_on():
    rows = [op("aten::loss", 0)]
    for at, shape in ((10, (64, 8)), (20, (8, 8)), (30, (8, 8)), (40, (8, 8))):
        rows += gradient(at, *shape)
    (item,) = passes_of(pl.DataFrame(rows))
    assert last_used(item, Counter([(64, 8), (8, 8)])) == 25
    assert last_used(item, Counter([(8, 8)] * 3)) == 45


def test_backward_work_after_the_last_gradient_in_use_is_needless():
    mine = [work("nvjet", 3.0, f"{AUTOGRAD}: MmBackward0", "aten::mm")]
    every = [*mine, work("nvjet", 3.0, "aten::mm")]
    kind = "kernels-needless-backward"
    findings = raised(signals([], **_with(Unused(7, 2, mine), every)), kind)
    assert sum(claim.ms for claim in findings[kind].claims) == 3.0
    assert findings[kind].changes == ("family:nvjet=0.500000",)
    for fine in (Unused(0, 9, []), Unused(7, 2, [])):
        assert raised(signals([], **_with(fine, every)), kind) == {}


def _with(unused: Unused, works: list) -> dict:
    return {"kernels_unused_gradients": unused, "kernels_work": works}
