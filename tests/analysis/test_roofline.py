"""The speed of light: needs against a reference that loops, real traces under published peaks, and sums."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.analysis.results import Device, LedgerRow
from fathom.analysis.roofline import at_ceiling, check_rates, needs, utilisation
from fathom.machine.ceilings import Ceiling, to_records
from fathom.machine.limits import Limits, limits_of
from tests.analysis.test_work_traces import FILES, PEAKS, full_window, trace
from tests.support.examined import on_traces
from tests.support.works import family_work

LIMITS = Limits(
    arithmetic={"matmul.bf16": 800e12, "matmul.fp32": 50e12, "matmul.tf32": 400e12, "vector.fp32": 60e12},
    memory=4e12,
    writes=4.5e12,
    cache=10e12,
    cache_bytes=50_000_000,
    copies={"HtoD pinned": 50e9},
    link=300e9,
    launch_s=1e-6,
)
SCHEMA = {
    "kind": pl.String, "name": pl.String, "direction": pl.String, "flops": pl.Float64, "bytes": pl.Float64,
    "work_dtype": pl.String, "footprint": pl.Float64, "product": pl.Boolean, "abstained": pl.String,
}  # fmt: skip
ROW: dict[str, Any] = {**dict.fromkeys(SCHEMA), "kind": "compute", "name": "kernel", "product": False}


def need(**row: Any) -> tuple[float | None, str | None, str | None]:
    result = needs(pl.DataFrame([ROW | row], schema=SCHEMA), LIMITS).row(0, named=True)
    return result["need_ns"], result["bound"], result["unbounded"]


def test_a_large_product_is_bound_by_matrix_units() -> None:
    flops, size = 2 * 8192.0**3, 3 * 8192.0**2 * 2
    time, bound, _ = need(flops=flops, bytes=size, footprint=size, work_dtype="bf16", product=True)
    assert time == pytest.approx(flops / 800e12 * 1e9) and bound == "matmul.bf16"


@pytest.mark.parametrize(
    "kernel", ["cutlass_80_tensorop_s1688gemm_128x128", "nvjet_sm90_sss_64x64", "sm80_xmma_gemm_tf32f32"]
)
def test_fp32_products_on_tensor_cores_count_at_tf32(kernel: str) -> None:
    rest = {"flops": 1e12, "bytes": 1e6, "footprint": 1e9, "work_dtype": "fp32", "product": True}
    assert need(name=kernel, **rest)[:2] == (pytest.approx(1e12 / 400e12 * 1e9), "matmul.tf32")
    assert need(name="ampere_sgemm_128x64_tn", **rest)[:2] == (pytest.approx(2e7), "matmul.fp32")


def test_what_fits_into_the_cache_is_bound_by_the_cache() -> None:
    assert need(flops=0.0, bytes=4e7, footprint=4e7) == (pytest.approx(4000), "l2", None)
    assert need(flops=0.0, bytes=4e7, footprint=6e7) == (pytest.approx(10000), "hbm", None)


def test_copies_go_over_their_link_and_sets_at_the_speed_of_writes() -> None:
    assert need(kind="copy", direction="HtoD pinned", flops=0.0, bytes=5e7)[:2] == (1e6, "copy HtoD pinned")
    assert need(kind="set", flops=0.0, bytes=4.5e9)[:2] == (pytest.approx(1e6), "hbm")


def test_what_is_not_known_is_said() -> None:
    assert need(bytes=None, abstained="no formula for this operator")[2] == "no formula for this operator"
    assert need(flops=1e9, bytes=1e3, work_dtype="fp8", product=True)[2] == (
        "no ceiling is known for matmul.fp8"
    )
    assert need(kind="copy", direction="DtoH pageable", flops=0.0, bytes=1e3)[2] == (
        "no ceiling is known for copy DtoH pageable"
    )
    assert need(flops=None, bytes=1e3, work_dtype="bf16", product=True)[0] is None


def test_a_cache_that_was_never_measured_bounds_products_by_their_arithmetic_alone() -> None:
    unmeasured = replace(LIMITS, cache=None)
    row = ROW | {"flops": 8e9, "bytes": 1e6, "footprint": 1e6, "work_dtype": "bf16"}
    result = needs(pl.DataFrame([row | {"product": True}, row], schema=SCHEMA), unmeasured)
    assert result["need_ns"].to_list() == [pytest.approx(1e4), None]
    assert result["unbounded"][1] == "no ceiling is known for l2"


def test_a_fused_kernel_without_a_flop_count_is_bound_by_its_traffic() -> None:
    assert need(flops=None, bytes=4e9, footprint=4e9, work_dtype="fp32") == (pytest.approx(1e6), "hbm", None)


AMOUNT = st.none() | st.floats(0, 1e15)


@settings(max_examples=60)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "kind": st.sampled_from(["compute", "copy", "set", "collective"]),
                "direction": st.sampled_from([None, "HtoD pinned", "DtoD"]),
                "flops": AMOUNT,
                "bytes": AMOUNT,
                "footprint": AMOUNT,
                "work_dtype": st.sampled_from([None, "bf16", "fp32", "fp64", "int64"]),
                "product": st.booleans(),
            }
        ),
        min_size=1,
        max_size=8,
    )
)
def test_needs_agree_with_a_loop(rows: list[dict[str, Any]]) -> None:
    result = needs(pl.DataFrame([ROW | row for row in rows], schema=SCHEMA), LIMITS)
    for row, (time, bound, why, _) in zip(rows, result.rows(), strict=True):
        expected = reference(row)
        assert (time is None) == (expected is None) == (why is not None)
        assert (bound is None) == (time is None) or time == 0  # nothing bounds what moves nothing
        assert expected is None or math.isclose(time, expected, rel_tol=1e-9, abs_tol=1e-9)


def reference(row: dict[str, Any]) -> float | None:
    """The definition, one row at a time."""
    if row["kind"] == "copy":
        speed = LIMITS.copies.get(row["direction"] or "")
    elif row["kind"] == "collective":
        speed = LIMITS.link
    elif row["footprint"] is not None and row["footprint"] <= LIMITS.cache_bytes:
        speed = LIMITS.cache
    else:
        speed = LIMITS.writes if row["kind"] == "set" else LIMITS.memory
    if row["bytes"] is None or (speed is None and not row["product"]):
        return None
    unit = f"matmul.{row['work_dtype']}" if row["product"] else "vector.fp32"
    unit = "vector.fp64" if not row["product"] and row["work_dtype"] == "fp64" else unit
    rate = LIMITS.arithmetic.get(unit)
    if row["product"] and (row["flops"] is None or rate is None):
        return None
    arithmetic = (row["flops"] or 0) / rate if rate else 0.0
    return max(arithmetic, row["bytes"] / speed if speed else 0.0) * 1e9


@pytest.mark.parametrize("name", on_traces(FILES))
def test_no_real_family_is_faster_than_published_peaks_allow(name: str) -> None:
    """With the datasheet's peaks as ceilings, and caches that bound nothing, no family beats its need."""
    flops, bandwidth, cache = PEAKS[name.split("-")[0]]
    peaks = {f"matmul.{dtype}": rate for dtype, rate in flops.items()} | {"matmul.tf32": flops["fp32"] * 8}
    limits = Limits(arithmetic=peaks, memory=bandwidth, cache=math.inf, cache_bytes=int(cache))
    tables = trace(name)
    kernels = tables[2].filter(pl.col("kind") == "compute")
    result = family_work(tables[0], tables[1], kernels, full_window(kernels), limits=limits)
    took = kernels.group_by("family").agg(took=(pl.col("end_ns") - pl.col("start_ns")).sum())
    rows = result.join(took, on="family").drop_nulls("need_ns")
    assert rows.height > 5
    assert rows.filter(pl.col("need_ns") > pl.col("took")).is_empty()


def entry(name: str, ms: float, need_ms: float | None = None, **more: Any) -> LedgerRow:
    return LedgerRow(name, "", ms, at_ceiling_ms=need_ms, **more)


def device(*ledger: LedgerRow) -> Device:
    return Device(0, "cuda:0", [], sum(e.ms for e in ledger), list(ledger), None)


def test_the_step_at_the_speed_of_light_is_the_sum_of_its_needs() -> None:
    result = device(entry("compute", 8, 4.0), entry("compute", 2, unbounded="x"), entry("idle: python", 5))
    at_ceiling(result, LIMITS)
    assert (result.at_ceiling_ms, result.at_ceiling_bound, result.at_ceiling_known) == (4.0, "work", 0.8)
    assert result.ledger[2].at_ceiling_ms == 0.0


def test_many_small_kernels_are_bound_by_their_launches() -> None:
    result = device(entry("compute", 8, 0.5, count=3000.0))
    at_ceiling(result, LIMITS)
    assert result.at_ceiling_ms == pytest.approx(3.0) and result.at_ceiling_bound == "launches"


def test_work_that_is_quicker_than_its_ceiling_is_pointed_at() -> None:
    usual, above = entry("compute", 5.0, 5.2), entry("compute", 4.0, 9.0)
    small, idle = entry("compute", 0.05, 1.0), entry("idle: python", 3.0)
    for item in (usual, above, small):
        item.own_ms, item.bound = item.ms, "hbm"
    check_rates([usual, above, small, idle], LIMITS, None)
    assert [bool(value.problem) for value in (usual, above, small, idle)] == [False, True, True, False]
    assert above.problem == "225 % of the measured ceiling (hbm)"


def test_a_step_cannot_need_longer_than_it_took() -> None:
    result = device(entry("compute", 8, 20.0), entry("compute", 4, 1.0))
    at_ceiling(result, LIMITS)
    assert result.at_ceiling_ms == 9.0


@pytest.mark.parametrize(("flops", "known"), [(0.2e12, True), (0.3e12, False)])
def test_peaks_that_products_beat_give_no_share(flops: float, known: bool) -> None:
    """5 ms at 50 TFLOP/s are 0.25 TFLOP: what did more proves that the peak is another."""
    ledger = [entry("compute", 5, 5.0, unit="matmul.fp32", product_flops=flops, bytes=1.0)]
    result = utilisation(ledger, 5.0, LIMITS, {"matmul.fp32": 100e12})
    assert result is not None and (result.mfu is not None) == (result.hfu is not None) == known
    assert result.mfu_datasheet == pytest.approx(flops / 100e12 * 200)


def test_without_ceilings_nothing_is_claimed() -> None:
    result = device(entry("compute", 8))
    at_ceiling(result, None)
    assert result.at_ceiling_ms is None and utilisation(result.ledger, 8, None, None) is None


def test_mfu_counts_each_product_at_the_peak_of_its_dtype() -> None:
    ledger = [
        entry(
            "compute", 5, 1.0, unit="matmul.bf16", product_flops=1.6e12, recomputed_flops=0.8e12, bytes=1.0
        ),
        entry("compute", 5, 1.0, unit="matmul.fp32", product_flops=0.05e12, bytes=1.0),
    ]
    result = utilisation(ledger, 10.0, LIMITS, {"matmul.bf16": 1000e12, "matmul.fp32": 100e12})
    assert result is not None
    assert result.mfu == pytest.approx((1.0 + 1.0) / 10) and result.hfu == pytest.approx((2.0 + 1.0) / 10)
    assert result.mfu_datasheet == pytest.approx((0.8 + 0.5) / 10)
    assert result.flops == pytest.approx(0.85e12) and not result.partial


def test_unknown_kernels_make_the_flops_a_lower_bound() -> None:
    known = entry("compute", 99, unit="matmul.bf16", product_flops=1e12, bytes=1.0)
    for ms, partial in ((0.5, False), (2.0, True)):
        result = utilisation([known, entry("compute", ms)], 100.0, LIMITS, None)
        assert result is not None and result.partial is partial


def test_a_peak_that_is_missing_leaves_the_figure_out() -> None:
    ledger = [entry("compute", 5, unit="matmul.fp8", product_flops=1e12)]
    assert utilisation(ledger, 10.0, LIMITS, None) is None
    published = utilisation(ledger, 10.0, LIMITS, {"matmul.fp8": 1000e12})
    assert published is not None and published.mfu is None and published.mfu_datasheet == pytest.approx(0.1)


def ceiling(name: str, value: float, device: int | None = 0) -> Ceiling:
    return Ceiling(id=name, value=value, unit="", low=value, high=value, samples=3, device=device)


def test_limits_come_from_what_was_measured() -> None:
    measured = [ceiling("hbm.read", 4.4e12), ceiling("hbm.copy", 4.2e12), ceiling("hbm.write", 4.6e12)]
    measured += [ceiling("matmul.bf16", 7e14), ceiling("matmul.int8", 1e15), ceiling("l2.read", 9e12)]
    machine = {"ceilings": to_records(measured), "gpus": [{"index": 0, "l2_bytes": 60 << 20}]}
    result = limits_of(machine, 0)
    assert result is not None
    assert (result.memory, result.writes, result.cache, result.cache_bytes) == (
        4.4e12,
        4.6e12,
        9e12,
        60 << 20,
    )
    assert result.arithmetic == {"matmul.bf16": 7e14, "matmul.int8": 1e15, "matmul.uint8": 1e15}
    rates = [result.moving(share) for share in (None, 0.0, 0.25, 0.5, 0.75, 1.0)]
    assert rates == pytest.approx([4.4e12, 4.4e12, 4.3e12, 4.2e12, 4.4e12, 4.6e12])


@pytest.mark.parametrize("measured", [[], [ceiling("hbm.copy", 1e12)], [ceiling("matmul.bf16", 1e14)]])
def test_half_a_machine_bounds_nothing(measured: list[Ceiling]) -> None:
    assert limits_of({"ceilings": to_records(measured)}, 0) is None
    assert limits_of({"ceilings": to_records(measured)}, None) is None


def test_the_processor_has_limits_of_its_own() -> None:
    measured = [ceiling("host.copy", 2e10, None), ceiling("host.matmul.fp32", 1e11, None)]
    result = limits_of({"ceilings": to_records(measured)}, None)
    assert result is not None and result.arithmetic["vector.fp32"] == 1e11 and result.memory == 2e10
