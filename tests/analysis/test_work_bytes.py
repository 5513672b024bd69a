"""Compulsory bytes against the tensors that real ops read and returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.analysis.work.registry import evaluate
from tests.support.work_frames import recorded

torch = pytest.importorskip("torch")
ops = torch.ops.aten
DTYPES = {
    torch.float32: "float",
    torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int",
    torch.bool: "bool",
}


def t(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.ones(shape, dtype=dtype)


def ids(*shape: int, below: int = 5) -> Any:
    return torch.randint(below, shape)


def moved(tensors: Any) -> int:
    """Bytes of every tensor in a nest of tuples, lists and other things, each element once."""
    if isinstance(tensors, torch.Tensor):
        return tensors.numel() * tensors.element_size()
    return sum(moved(x) for x in tensors) if isinstance(tensors, list | tuple) else 0


B16 = torch.bfloat16
CASES = {
    "mm": (t(4, 5), t(5, 6)),
    "bmm": (t(3, 4, 5, dtype=B16), t(3, 5, 6, dtype=B16)),
    "addmm": (t(6), t(4, 5), t(5, 6)),
    "baddbmm": (t(3, 4, 6), t(3, 4, 5), t(3, 5, 6)),
    "mv": (t(4, 5), t(5)),
    "addmv": (t(4), t(4, 5), t(5)),
    "dot": (t(7), t(7)),
    "_int_mm": (t(24, 16, dtype=torch.int8), t(16, 8, dtype=torch.int8)),
    "add": (t(4, 1, 5), t(3, 1)),
    "mul": (t(4, 5, dtype=B16), t(5)),
    "sub": (t(4, dtype=torch.int64), t(4, dtype=torch.bool).to(torch.int32)),
    "div": (t(4, dtype=torch.int64), t(4, dtype=torch.int64)),
    "eq": (t(4, 5), t(5)),
    "logical_not": (t(9),),
    "exp": (t(3, 4, dtype=torch.int64),),
    "neg": (t(3, 4),),
    "gelu": (t(3, 4, dtype=B16),),
    "gelu_backward": (t(3, 4), t(3, 4)),
    "threshold_backward": (t(3, 4), t(3, 4), 0),
    "where": (t(4, 1, dtype=torch.bool), t(4, 5, dtype=B16), t(5, dtype=B16)),
    "masked_fill_": (t(4, 5), t(5, dtype=torch.bool), 0.0),
    "lerp": (t(4), t(4), t(4)),
    "addcmul_": (t(4), t(4), t(4)),
    "add_": (t(4, 5), t(5)),
    "mul_": (t(4, 5), 2.0),
    "clamp": (t(4, 5), 0, 1),
    "cumsum": (t(4, 5, dtype=torch.bool), 0),
    "sum": (t(4, 5),),
    "sum.dim_IntList": (t(4, 5, 6), [0, -1], True),
    "mean.dim": (t(4, 5, dtype=B16), [1], False),
    "amax": (t(4, 5), [0]),
    "max.dim": (t(4, 5), 1),
    "argmax": (t(4, 5), 1),
    "any.dim": (t(4, 5, dtype=torch.bool), 1),
    "all": (t(4, 5, dtype=torch.bool),),
    "linalg_vector_norm": (t(4, 5), 2, [1]),
    "_softmax": (t(4, 5), -1, False),
    "_log_softmax": (t(4, 5, dtype=B16), -1, False),
    "_log_softmax_backward_data": (t(4, 5), t(4, 5), 1, torch.float32),
    "native_layer_norm": (t(4, 5, 6), [6], t(6), t(6), 1e-5),
    "native_layer_norm_backward": (
        *(t(4, 6), t(4, 6), [6], t(4, 1), t(4, 1), t(6), t(6)),
        [True, True, True],
    ),
    "native_group_norm": (t(2, 6, 5), t(6), t(6), 2, 6, 5, 3, 1e-5),
    "index_select": (t(50, 4), 0, ids(20)),
    "gather": (t(50, 4), 0, ids(20, 4)),
    "max_pool2d_with_indices": (t(2, 3, 9, 10), [3, 3], [2, 2], [1, 1]),
    "max_pool2d_with_indices.ceil": (t(2, 3, 9, 10), [2, 2], [2, 2], [0, 0], [1, 1], True),
    "_adaptive_avg_pool2d": (t(2, 3, 9, 10), [2, 5]),
    "convolution": (t(2, 6, 9, 11), t(8, 3, 3, 3), t(8), [2, 1], [1, 1], [1, 1], False, [0, 0], 2),
    "convolution.every_second": (
        t(2, 6, 8, 8),
        t(8, 6, 1, 1),
        t(8),
        [2, 2],
        [0, 0],
        [1, 1],
        False,
        [0, 0],
        1,
    ),
    "native_dropout": (t(4, 5), 0.5, True),
    "mse_loss": (t(4, 5), t(4, 5)),
    "bitwise_and": (t(9, dtype=torch.bool), t(9, dtype=torch.bool)),
}
# Lookups read a part of the table, and of a few inputs only the sizes matter.
READS = {
    "index_select": lambda x: moved(x[2]) + 20 * 4 * 4,
    "gather": lambda x: moved(x[2]) + 20 * 4 * 4,
    "native_layer_norm_backward": lambda x: moved(x) - moved(x[6]),
    "convolution.every_second": lambda x: moved(x[:3]) - 3 * moved(x[0]) / 4,
}


@pytest.mark.parametrize("case", CASES)
def test_inputs_once_and_outputs_once(case: str) -> None:
    name, arguments = case.split(".")[0], CASES[case]
    call: Callable[..., Any] = getattr(ops, name)
    results: list[Any] = []
    recording = recorded(lambda: results.append(call(*arguments)))
    outermost = recording.filter(pl.col("name") == f"aten::{name}").sort("start_ns").row(0, named=True)
    work = evaluate(*(outermost[column] for column in ("name", "shapes", "dtypes", "values")))
    assert work.why == ""
    assert work.bytes == READS.get(case, moved)(arguments) + moved(results)


shapes = st.lists(st.integers(1, 6), max_size=4)


@given(shapes, st.data())
@settings(max_examples=60)
def test_broadcast_and_promotion_are_torchs_own(shape: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(shape)))
    other = [data.draw(st.sampled_from([1, size])) for size in shape[cut:]]
    kinds = data.draw(st.tuples(*[st.sampled_from(list(DTYPES))] * 2))
    a, b = t(*shape, dtype=kinds[0]), t(*other, dtype=kinds[1])
    out = torch.add(a, b)
    work = evaluate(
        "aten::add", f"[{shape}, {other}, []]", _json(*(DTYPES[k] for k in kinds), "Scalar"), '["", "", "1"]'
    )
    numbers = [x for x in (a, b) if not x.dim() and out.dim()]  # passed as such, not read from memory
    assert work.bytes == moved([a, b, out]) - moved(numbers)
    assert work.flops == (out.numel() if out.is_floating_point() else 0)


@given(st.tuples(*[st.integers(1, 40)] * 3))
def test_a_product_is_its_loops(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    work = evaluate("aten::mm", f"[[{m}, {k}], [{k}, {n}]]", _json("c10::Half", "c10::Half"), '["", ""]')
    assert (work.flops, work.bytes, work.dtype) == (2 * m * k * n, 2 * (m * k + k * n + m * n), "fp16")


def test_experts_share_one_product() -> None:
    tokens, inner, outer, experts = 40, 16, 24, 4
    work = evaluate(
        "aten::_grouped_mm",
        f"[[{tokens}, {inner}], [{experts}, {inner}, {outer}], [{experts}], [], []]",
        _json("c10::BFloat16", "c10::BFloat16", "int", "", ""),
        '["", "", "", "", ""]',
    )
    assert work.flops == 2 * tokens * inner * outer
    assert work.bytes == 2 * (tokens * inner + experts * inner * outer + tokens * outer) + 4 * experts


def test_scaled_products_write_the_type_that_is_asked_for() -> None:
    kinds = _json("c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float", "float", "", "", "Scalar", "Scalar")
    work = evaluate(
        "aten::_scaled_mm",
        "[[32, 64], [64, 16], [], [], [], [], [], []]",
        kinds,
        '["", "", "", "", "", "", "15", "True"]',
    )
    assert work.flops == 2 * 32 * 64 * 16
    assert work.bytes == 32 * 64 + 64 * 16 + 2 * 32 * 16 + 8


def _json(*names: str) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
