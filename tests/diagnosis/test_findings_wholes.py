"""Rules that judge a norm, a loop or an optimizer whole, on signals that must and must not raise them."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from fathom.diagnosis.rules.kernels.norm import norms
from fathom.diagnosis.rules.kernels.rows_of_products import times
from fathom.diagnosis.signals import Chain, Product, UnknownSignalError
from fathom.diagnosis.signals.chains import _runs
from fathom.diagnosis.signals.rows import Kernel
from tests.support.findings_fakes import H200, compute, raised, signals, work

BF16 = "c10::BFloat16"


def layer(ms: float, rows: int, count: float, name: str = "Linear_0") -> Product:
    done = work("gemm", ms, "aten::linear", "aten::mm", count=count, module=name)
    return Product(rows, 4096, 4096, 1, "bf16", done)


@pytest.mark.parametrize(
    ("products", "kind", "again"),
    [
        ([layer(4.0, 64, 16.0), layer(4.0, 64, 16.0, "Linear_1")], "kernels-batch-too-small", 16),
        ([layer(4.0, 1, 8.0)], "kernels-weight-bound-decode", 8),
        ([layer(4.0, 64, 1.0)], None, 1),
        ([layer(4.0, 4096, 16.0)], None, 16),
        ([layer(4.0, 64, 1.0), layer(0.5, 64, 16.0, "Linear_1")], None, 1),
    ],
)
def test_layers_that_run_several_times_a_step_could_do_all_rows_at_once(products, kind, again):
    assert times(products) == again
    given = signals(
        [compute("gemm", 8.0)],
        numbers_products=products,
        kernels_work=[product.work for product in products],
        kernels_ceilings=H200 | {"memory": 4.6e12},
    )
    findings = raised(given, "kernels-batch-too-small", "kernels-weight-bound-decode")
    assert set(findings) == ({kind} if kind else set())
    if kind:
        assert f"python={1 / again:.6f}" in findings[kind].changes


NORMALISE = "net.py(12): forward"


def over_rows(name: str, ms: float, *ops: str, source: str | None = NORMALISE, numbers: int = 4096):
    shapes = f"[[8192, {numbers}], [8192, 1]]"
    return work(name, ms, *ops, shapes=shapes, dtypes=json.dumps([BF16]), source=source, count=4.0)


def pieces_of_a_norm() -> list:
    root = work("rsqrt", 0.01, "aten::rsqrt", shapes="[[8192, 1]]", source=NORMALISE, count=4.0)
    names = ("mean", "sub", "pow", "mul")
    behind = f"autograd::engine::evaluate_function: {'{}'}Backward0"
    forward = [over_rows(name, 0.4, f"aten::{name}") for name in names]
    back = [over_rows(f"{n}_back", 0.6, behind.format(n.title()), "aten::mul", source=None) for n in names]
    return [root, *forward, *back]


def test_a_norm_in_pieces_is_all_that_passes_over_its_tensor():
    works = pieces_of_a_norm()
    relu = over_rows("relu", 1.0, "aten::relu", source="net.py(20): forward")
    given = {"kernels_ceilings": H200 | {"memory": 4.6e12}}
    kind = "kernels-unfused-norm"
    result = raised(signals([], kernels_work=[*works, relu], **given), kind)[kind]
    needed = 1e3 * 4 * 7 * 8192 * 4096 * 2 / (0.6 * 4.6e12)
    assert result.evidence[0].value == pytest.approx(4 * 0.4 + 4 * 0.6)
    assert sum(claim.ms for claim in result.claims) == pytest.approx(4.0 - needed)
    for missing in ("rsqrt", "mean"):
        some = [item for item in works if item.family != missing]
        assert raised(signals([], kernels_work=some, **given), kind) == {}


def test_without_a_ceiling_a_norm_is_held_against_the_rate_of_its_own_kernels():
    works, kind = pieces_of_a_norm(), "kernels-unfused-norm"
    ledger = [compute(item.family, item.ms, bytes=2e9 * item.ms) for item in works]  # 2 TB/s, each of them
    result = raised(signals(ledger, kernels_work=works), kind)[kind]
    needed = 1e3 * 4 * 7 * 8192 * 4096 * 2 / 2e12
    assert sum(claim.ms for claim in result.claims) == pytest.approx(
        sum(item.ms for item in works[1:]) - needed
    )
    with pytest.raises(UnknownSignalError):
        raised(signals([compute(item.family, item.ms) for item in works], kernels_work=works), kind)


def test_without_a_ceiling_a_loss_is_held_against_the_rate_of_its_own_kernels():
    shapes, types = "[[8192, 50304]]", json.dumps([BF16])
    layer = Product(8192, 50304, 768, 1, "bf16", work("gemm", 4.0, "aten::linear", "aten::mm"))
    mine = [
        work(name, ms, f"aten::{name}", shapes=shapes, dtypes=types)
        for name, ms in (("_log_softmax", 3.0), ("one_hot", 3.0), ("mul", 3.0))
    ]
    known = {"numbers_products": [layer], "kernels_work": [layer.work, *mine]}
    ledger = [compute(item.family, item.ms, bytes=2e9 * item.ms) for item in mine]
    kind = "kernels-unfused-loss"
    result = raised(signals(ledger, **known), kind)[kind]
    needed = 1e3 * 3 * 8192 * 50304 * 2 / 2e12
    assert sum(claim.ms for claim in result.claims) == pytest.approx(9.0 - needed)
    with pytest.raises(UnknownSignalError):
        raised(signals([], **known), kind)


def test_backward_work_is_shared_with_others_that_use_the_same_ops():
    other = over_rows("mul", 0.4, "aten::mul", source="net.py(20): forward")
    (norm,) = norms([*pieces_of_a_norm(), other])
    assert next(work.ms for work in norm.works if work.family == "mul_back") == pytest.approx(0.3)


OWN = "train.py(9): update"
GRADIENTS = Counter({(1024, 1024): 20, (64,): 20})


def update(op: str, shape: list[int], count: float = 20.0, source: str = OWN):
    return work(
        "vectorized_elementwise_kernel", 0.2, op, shapes=json.dumps([shape]), source=source, count=count
    )


def test_an_optimizer_of_ones_own_changes_every_parameters_tensors_in_place():
    every = [
        update(f"aten::{name}", shape)
        for name in ("mul_", "add_", "sqrt", "div")
        for shape in ([1024, 1024], [64])
    ]
    back = work("gemm", 3.0, "autograd::engine::evaluate_function: MmBackward0", "aten::mm")
    kind = "kernels-for-loop-optimizer"
    for works, expected in (
        ([*every, back], True),
        (every, False),  # nothing is trained
        ([update("aten::mul_", [1024, 1024]), update("aten::mul_", [64]), back], False),  # an average
        ([item for item in every if "64" not in (item.shapes or "")] + [back], False),
        ([update(f"aten::{name}", [1024, 1024]) for name in ("mul", "add", "sqrt")] + [back], False),
    ):
        given = signals([], kernels_work=works, kernels_gradients=GRADIENTS, host_ops={"aten::mul_": 50.0})
        findings = raised(given, kind)
        assert bool(findings) == expected
        if findings:
            assert "op:aten::mul_=0.200000" in findings[kind].changes


@pytest.mark.parametrize(
    ("ops", "numbers", "expected"),
    [
        (("aten::mul_", "aten::add_") * 4, 1 << 27, True),
        (("aten::mul_", "aten::add_") * 4, 1 << 23, False),  # the cache holds it
        (("aten::mul", "aten::add") * 4, 1 << 27, False),  # each writes another tensor
        (("aten::mul_", "aten::add_", "aten::mul_"), 1 << 27, False),
    ],
)
def test_passes_in_place_over_more_than_the_cache_holds_read_it_again(ops, numbers, expected):
    chain = Chain(ops, 4.0, {"elementwise_kernel": 3.5}, 1.0, numbers, 1024)
    given = signals(
        [compute("elementwise_kernel", 4.0)],
        kernels_chains=[chain],
        kernels_counted=[],
        kernels_work=[work("elementwise_kernel", 4.0)],
        device_gpu={"l2_bytes": 60_000_000},
    )
    findings = raised(given, "kernels-l2-thrash")
    assert bool(findings) == expected
    if findings:
        saved = 0.5 * (1 - 1 / 8) * 0.4 * 4.0
        assert sum(claim.ms for claim in findings["kernels-l2-thrash"].claims) == pytest.approx(saved)


ROTATE = "net.py(25): rotated"


def link(op: str, numbers: int, source: str | None = ROTATE, label: str = "elementwise_kernel"):
    return Kernel(label, [op], json.dumps([[numbers // 64, 64]]), "[]", source=source, ns=1000)


@pytest.mark.parametrize(
    ("rows", "length"),
    [
        ([link("aten::mul", 1 << 20)] * 4, 4),
        ([link("aten::mul", 1 << 20)] * 2, None),
        ([link("aten::mul", 1 << 20), link("aten::neg", 1 << 19), link("aten::add", 1 << 20)], 3),
        ([link("aten::mul", 1 << 20), link("aten::neg", 1 << 19, None), link("aten::add", 1 << 20)], None),
        (
            [
                link("aten::mul", 1 << 20),
                link("aten::mm", 1 << 20, label="nvjet"),
                link("aten::add", 1 << 20),
            ],
            None,
        ),
        ([link("aten::mul", 64)] * 4, None),
    ],
)
def test_chains_are_neighbours_over_as_many_numbers(rows, length):
    result = _runs(rows, [])
    assert [len(run) for run in result] == ([length] if length else [])


def test_a_chain_ends_with_its_step():
    rows = [link("aten::mul", 1 << 20)._replace(window=window) for window in (0, 0, 0, 1, 1, 1, 1)]
    assert [len(run) for run in _runs(rows, [])] == [3, 4]


def test_what_is_joined_of_parts_belongs_to_the_chain():
    shapes = json.dumps([[[1 << 13, 64], [1 << 13, 64]], []])
    joined = link("aten::cat", 0, label="CatArrayBatchedCopy")._replace(shapes=shapes)
    rows = [link("aten::mul", 1 << 20), joined, link("aten::add", 1 << 20)]
    assert [len(run) for run in _runs(rows, [])] == [3]


def test_recomputing_costs_more_than_its_products():
    again = "autograd::engine::evaluate_function: ReluBackward0"
    relu = work("relu", 0.5, again, "ReluBackward0", "aten::relu", "aten::clamp_min")
    back = work("threshold", 0.7, again, "ReluBackward0", "aten::threshold_backward")
    given = signals(
        [compute("gemm", 8.0, product_flops=8e12, recomputed_flops=2e12), compute("relu", 0.5)],
        kernels_work=[relu, back],
        device_used_bytes=1e9,
        device_memory_bytes=141e9,
    )
    result = raised(given, "kernels-needless-recomputation")["kernels-needless-recomputation"]
    assert sum(claim.ms for claim in result.claims) == pytest.approx(2.5)
