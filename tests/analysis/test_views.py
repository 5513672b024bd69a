"""Work by category and by input shapes, on real traces and against a count of their kernels."""

from __future__ import annotations

import json

import numpy as np
import pytest
from msgspec.structs import replace

from fathom.analysis.entries import COLLECTIVES, WORK, Entry
from fathom.analysis.results import Device, LedgerRow, OpShape
from fathom.analysis.views import categories_of, category_of
from fathom.report.ledger import by_name
from fathom.report.views import labelled, shapes, spread
from tests.support.examined import imported, of_trace, on_trace, on_traces
from tests.support.paths import TRACES

shared = pytest.mark.skipif(not TRACES.is_dir(), reason="the shared traces are not here")


@shared
@pytest.mark.parametrize("name", on_traces(["h100-qwen-0.5b", "kineto-resnet-w0", "deepseek-train"]))
def test_categories_sum_to_the_work_of_the_ledger(name: str) -> None:
    (device,) = of_trace(name).devices
    work = [row.ms for row in device.ledger if row.entry in (*WORK, *COLLECTIVES, Entry.COPY)]
    assert sum(category.ms for category in device.categories) == pytest.approx(sum(work))


@shared
@on_trace("h100-qwen-0.5b")
def test_shapes_agree_with_the_kernels_of_their_calls() -> None:
    """aten::mm of 8944×1024 and 1024×2816: 48 calls, each one kernel and a memset, counted in the tables."""
    store = imported("h100-qwen-0.5b")
    (device,) = of_trace("h100-qwen-0.5b").devices
    ops = store.table("ops").collect()
    calls, kernels = (store.table(name).collect() for name in ("launches", "kernels"))
    sizes = [[8944, 1024], [1024, 2816]]
    mine = [
        row["id"] for row in ops.iter_rows(named=True)
        if row["name"] == "aten::mm" and row["shapes"] and json.loads(row["shapes"]) == sizes
    ]  # fmt: skip
    launched = calls.filter(calls["op"].is_in(mine))["correlation"]
    pieces = kernels.filter(kernels["correlation"].is_in(launched.implode()))
    row = next(row for row in device.shapes if row.op == "aten::mm" and json.loads(row.shapes) == sizes)
    assert (row.count, row.category) == (len(mine), "matmul")
    assert row.ms == pytest.approx((pieces["end_ns"] - pieces["start_ns"]).sum() / 1e6)
    flops = 2 * 8944 * 1024 * 2816
    assert row.flops_per_s is not None
    rates = [flops / (us / 1e6) for us in (row.max_us, row.median_us, row.min_us)]
    assert np.allclose(row.flops_per_s, rates, rtol=1e-3)


@shared
@on_trace("kineto-resnet-w0")
def test_kernels_of_one_name_share_a_row() -> None:
    (device,) = of_trace("kineto-resnet-w0").devices
    rows = by_name(device.ledger)
    assert len(rows) < len(device.ledger) / 2
    for field in ("ms", "count"):
        assert sum(getattr(row, field) or 0 for row in rows) == pytest.approx(
            sum(getattr(row, field) or 0 for row in device.ledger)
        )
    optimizer = next(category for category in device.categories if category.name == "optimizer")
    assert optimizer.count == pytest.approx(588, abs=1)


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("aten::addmm", "matmul"),
        ("aten::_scaled_dot_product_flash_attention", "attention"),
        ("aten::convolution_backward", "convolution"),
        ("aten::native_layer_norm", "norm"),
        ("aten::embedding_dense_backward", "embedding"),
        ("aten::mul_", "elementwise"),
        ("aten::copy_", "copy"),
        ("c10d::allreduce_", "communication"),
        ("c10d::_allgather_base_", "communication"),
        ("k7", "other"),
    ],
)
def test_categories_of_names(name: str, category: str) -> None:
    assert category_of(name) == category


def test_figures_that_a_row_lacks_stay_unknown() -> None:
    rows = [
        LedgerRow("compute", "gemm 4x1x1·64x1x1", 2.0, count=1.0, flops=4.0, flops_per_s=2e3),
        LedgerRow("compute", "gemm 8x1x1·64x1x1", 1.0, count=2.0, flops=None),
        LedgerRow("compute", "relu 8x1x1·64x1x1", 1.0, count=2.0),
    ]
    gemm, relu = by_name(rows)
    assert (gemm.detail, gemm.ms, gemm.count, gemm.flops) == ("gemm", 3.0, 3.0, None)
    assert relu.detail == "relu 8x1x1·64x1x1"
    assert [category.flops for category in categories_of(rows[:2], None)] == [None]


def test_spreads() -> None:
    assert [spread(rates, 1e9) for rates in ([1e9, 2e9, 3e9], [1e9, 1e9, 1e9], [3e5, 1e8, 1e9], None)] == [
        "1.00–3.00",
        "1.00",
        "<0.001–1.00",
        "–",
    ]


def op(shapes: list, dtypes: list, ms: float = 1.0) -> OpShape:
    rates = [ms * 3e8, ms * 4e8, ms * 4.4e8]
    text = json.dumps(shapes), json.dumps(dtypes)
    return OpShape("aten::copy_", *text, "copy", 2.0, ms, 1.0, 2.0, 3.0, bytes_per_s=rates)


def shown(ops: list[OpShape], width: int, observer_ms: float | None = 1.0) -> list[str]:
    device = Device(0, "cuda:0", [], 9.0, [], observer_ms, shapes=ops)
    return [line.plain for line in shapes(device, width, None)]


def test_rows_of_one_shape_show_their_dtypes() -> None:
    alike = [[64, 512], [64, 512], []]
    rows = [op(alike, [a, b, "Scalar"]) for a, b in (("float", "c10::BFloat16"), ("c10::BFloat16", "float"))]
    assert labelled(rows) == [
        "aten::copy_ (fp32, bf16) 64×512, 64×512",
        "aten::copy_ (bf16, fp32) 64×512, 64×512",
    ]
    assert labelled([*rows[:1], op([[8]], ["float"])]) == ["aten::copy_ 64×512, 64×512", "aten::copy_ 8"]


@pytest.mark.parametrize("width", [78, 98, 118])
def test_rows_of_ops_differ_at_any_width(width: int) -> None:
    """Shapes that differ at their ends are not cut off there."""
    rows = [
        op([[64, 512, 1024, 1024, 16], [64, 512, 1024, last]], ["float"] * 2, 0.001 * last)
        for last in (8, 16)
    ]
    text = "\n".join(shown(rows, width))
    assert "1024×8" in text and "1024×16" in text and max(map(len, text.split("\n"))) <= width
    assert "<0.001" not in text and "0.00240–0.00352" in text


def test_the_table_of_ops_names_its_step() -> None:
    """Its times are those of profiled steps, while the ledger beside it is of the clean one."""
    assert "profiled steps, 9.00 ms" in shown([op([[8]], ["float"])], 98)[-1]
    assert "profiled step" not in "".join(shown([op([[8]], ["float"])], 98, None))


def test_columns_of_small_rates_do_not_touch() -> None:
    rates = {"flops_per_s": [2.44e10, 2.7e10, 3.01e10], "bytes_per_s": [9.75e10, 1.1e11, 1.21e11]}
    (line,) = (line for line in shown([replace(op([[64, 512]], ["float"]), **rates)], 98) if "copy_" in line)
    assert line.split()[-3:] == ["2.00", "0.0244–0.0301", "97.5–121"]
