"""Rules over counters of samples: what a kernel wastes of what it fetches, and writes beside tensors."""

from __future__ import annotations

import pytest

from fathom.analysis.measures.evaluate import KnownValues, measures_of
from fathom.diagnosis.signals import Family
from tests.support.findings_fakes import compute, raised, signals

GPU = {"l2_bytes": 50_000_000}
STRIDED = {"received_use": 20.0, "dram": 85.0, "dram_read": 68.0, "shared_per_block": 0.0}
SPILLS = {
    "dram_bytes": 150e6,
    "dram": 5.0,
    "dram_write": 4.0,
    "dram_read": 1.0,
    "l1_hit": 90.0,
    "issue": 20.0,
}


def kinds_of(kind, measures, name="mine", **known):
    family = Family(name, 8.0, "latency", 0.3, measures)
    return raised(signals([compute(name, 10.0)], kernels_counted=[family], device_gpu=GPU, **known), kind)


@pytest.mark.parametrize(
    ("other", "name", "expected"),
    [
        ({}, "mine", True),
        ({"received_use": 96.0}, "mine", False),
        ({"received_use": 240.0}, "mine", False),  # its own cache serves again
        ({"dram": 30.0, "dram_read": 24.0}, "mine", False),  # something else takes the time
        ({"shared_per_block": 4096.0}, "mine", False),  # copies into shared memory return nothing
        ({"received_use": -3.0}, "mine", False),  # noise
        ({}, "nvjet_sm90_tst", False),
    ],
)
def test_what_comes_from_l2_and_no_load_returns_is_read_with_a_stride(other, name, expected):
    result = kinds_of("kernels-uncoalesced", STRIDED | other, name)
    assert set(result) == ({"kernels-uncoalesced"} if expected else set())
    if expected:  # of 85 parts 68 are read; a fifth of these is used, what is written stays
        assert result["kernels-uncoalesced"].changes == (f"family:mine={(17 + 68 / 5) / 85:.6f}",)


@pytest.mark.parametrize("lacking", STRIDED)
def test_nothing_is_said_of_strides_where_a_counter_is_lacking(lacking):
    assert kinds_of("kernels-uncoalesced", {k: v for k, v in STRIDED.items() if k != lacking}) == {}


@pytest.mark.parametrize(
    ("other", "in_tensors", "expected"),
    [
        ({}, 20e6, True),
        ({}, 70e6, False),  # the cache does not hold all tensors: they may be what is written
        ({}, 49e6 * 2, False),
        ({"dram_bytes": 30e6}, 20e6, False),
        ({"l1_hit": 3.0}, 20e6, False),  # a stream through memory that another library allocated
        ({"dram_write": 2.0, "dram_read": 3.0}, 20e6, False),  # and one that reads it in part again
        ({"local_per_thread": 64.0}, 20e6, False),  # the launch says so: another rule's
    ],
)
def test_what_a_kernel_writes_beside_all_tensors_is_local_memory(other, in_tensors, expected):
    result = kinds_of("kernels-register-spills", SPILLS | other, device_allocated_bytes=in_tensors)
    candidates = [item for item in result.values() if item.evidence[0].text == "DRAM writes of a launch"]
    assert bool(candidates) == expected
    if expected:
        assert candidates[0].changes == ("family:mine=0.400000",)


@pytest.mark.parametrize(("in_tensors", "expected"), [(20e6, False), (60e6, True)])
def test_what_the_cache_holds_as_a_whole_does_not_leave_it(in_tensors, expected):
    assert (
        bool(kinds_of("kernels-l2-thrash", {"dram_bytes": 150e6}, device_allocated_bytes=in_tensors))
        == expected
    )


@pytest.mark.parametrize(
    ("bytes_a_thread", "stride", "use"), [(4, 1, 100.0), (16, 1, 100.0), (4, 8, 12.5), (4, 2, 50.0)]
)
def test_use_of_what_comes_from_l2_is_that_of_each_warps_load(bytes_a_thread, stride, use):
    """One load a warp: its returns and one of the warp's start, a warp every hundred clocks."""
    returned, fetched = 32 * bytes_a_thread / 128, 32 * bytes_a_thread * stride / 128
    counters = {
        "l1tex__lsu_writeback_active_mem_lgds": returned + 1,
        "l1tex__tex_writeback_active": 0.0,
        "l1tex__data_pipe_lsu_wavefronts_mem_shared": 1.0,
        "tpc__warps_launched_shader_cs": 2.0,
        "l1tex__m_xbar2l1tex_read_sectors_realtime": fetched,
    }
    rows = [
        {"counter": f"{name}.avg.pct_of_peak_sustained_elapsed", "value": value, "error": 0.01}
        | {"samples": 99, "source": "PM sampling"}
        for name, value in counters.items()
    ]
    measures = {item.name: item.value for item in measures_of(KnownValues(rows, {}))[0]}
    assert measures["received_use"] == pytest.approx(use)
