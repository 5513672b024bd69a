"""Derived measures are data: their formulas are safe, complete and right; what limits a family follows."""

from __future__ import annotations

import json
import math
from statistics import median

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom import open as open_sounding
from fathom.analysis.folding import Pool, counters_of
from fathom.analysis.folding.kinds import base
from fathom.analysis.measures import device_portraits
from fathom.analysis.measures.evaluate import SOURCES, KnownValues, catalogue, measures_of
from fathom.analysis.measures.facts import Launch, facts_of, fits, hardware
from fathom.analysis.measures.formula import FormulaError, MissingError, evaluate, names, parse
from fathom.analysis.measures.hierarchy import cache_peak, levels
from fathom.analysis.measures.results import Measure
from fathom.sounding import open_store
from faults.kept import unpacked
from tests.support import kernel_soundings as hand_made
from tests.support.paths import RECORDINGS, SHARED

NAMES = SHARED / "h200-counters.json"
FACTS = {"multiprocessors", "dram_peak", "link_peak", "pcie_peak", "l1_peak", "sm_clock", "sm_clock_most"}
FACTS |= {
    "l2_peak",
    "schedulers",
    "warps_most",
    "warps_fit",
    "blocks_fit",
    "fma_per_clock",
    "alu_per_clock",
    "xu_per_clock",
}
FACTS |= {"seconds", "compulsory_bytes", "algorithmic_flops", "arithmetic_peak"}


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "().__class__", "a[0]", "lambda: 1", "[1 for _ in a]", "not a",
        "a if b else c", "'text'", "1 << 9", "2 ** 9 ** 9", "a == b", "open('x')", "min(*a)", "min(a, key=b)",
        "min()", "a;b", "", "f'{a}'", "a := 1", "True", "1j", "~a", "x" * 5000, "(" * 500 + ")" * 500,
        "a\x00b",
    ],
)  # fmt: skip
def test_what_is_not_arithmetic_is_refused(text):
    with pytest.raises(FormulaError):
        parse(text)


@given(st.floats(-1e6, 1e6), st.floats(0.1, 1e6), st.floats(0, 10), st.floats(0, 10))
def test_errors_follow_the_formula(a, b, of_a, of_b):
    value, error = evaluate("100 * x.y / b - min(b, 7)", {"x.y": (a, of_a), "b": (b, of_b)})
    assert value == pytest.approx(100 * a / b - min(b, 7))
    by_b = -100 * a / b**2 - (1 if b < 7 else 0)
    if abs(b - 7) > 0.1 and of_b < b / 10:
        lost = 1e-6 + 1e-9 * abs(value)  # hidden by rounding of the value itself
        assert error == pytest.approx(math.hypot(100 / b * of_a, by_b * of_b), rel=0.01, abs=lost)


def test_a_missing_counter_or_a_zero_below_is_said():
    with pytest.raises(MissingError, match="b was not sampled"):
        evaluate("a / b", {"a": (1.0, 0.0)})
    with pytest.raises(MissingError, match="nothing to divide by"):
        evaluate("a / b", {"a": (1.0, 0.0), "b": (0.0, 0.0)})
    with pytest.raises(MissingError, match="finite"):
        evaluate("a * a", {"a": (1e300, 0.0)})


def test_the_catalogue_is_sound():
    rows = catalogue()
    assert len({row.name for row in rows}) == len(rows) >= 100
    for row in rows:
        assert row.sources and row.meaning and row.title, row.name
        assert row.unit == "%" or not row.resource, row.name
        least, most = row.healthy
        assert (least is None or row.low) and (most is None or row.high), row.name
        for source in row.sources:
            assert source.source in SOURCES, row.name
            for name in names(source.formula):
                assert "__" in name or name in FACTS or name.startswith("stall_"), (row.name, name)
            assert "{" not in source.formula + row.title + row.meaning


def test_fifty_measures_come_from_one_pass_of_an_h200():
    if not NAMES.exists():
        pytest.skip("the list of counters is not here")
    (first, *_) = json.loads(NAMES.read_text())["single_pass_groups"]
    rows = [
        {"counter": name, "value": 30.0, "error": 0.1, "samples": 9, "source": "PM sampling"}
        for name in first
    ]
    facts = facts_of(hardware({"gpus": [hand_made.GPU]}, 0), Launch(1e-4, 128, 32, 0, bytes=1e6))
    result, silent = measures_of(KnownValues(rows, facts))
    assert len([item for item in result if item.source == "PM sampling"]) >= 50
    assert all(silent.values())
    assert all("not sampled" in why for why in silent.values())


def test_a_measure_takes_the_first_source_that_is_there():
    ncu = {"counter": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", "source": "ncu"}
    pm = {"counter": "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"}
    record = {"value": 40.0, "error": 0.5, "samples": 1}
    only = {m.name: m for m in measures_of(KnownValues([ncu | record], {}))[0]}
    assert only["tensor"].source == "ncu" and only["tensor"].value == 40.0
    pm |= {"value": 41.0, "error": 0.2, "samples": 99, "source": "PM sampling"}
    both = {m.name: m for m in measures_of(KnownValues([ncu | record, pm], {}))[0]}
    assert (both["tensor"].source, both["tensor"].samples) == ("PM sampling", 99)


def test_a_device_without_figures_has_no_invented_ones():
    for machine in ({}, {"gpus": []}, {"gpus": [{"index": 0, "name": "no such chip"}]}):
        on = hardware(machine, 0)
        assert on.chip is None and on.figures == {} and on.memory() is None
        assert fits(on, Launch(1e-4, 128, 32, 0)) is None


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    store = hand_made.make(tmp_path_factory.mktemp("kernels") / "k.fathom")
    examination = open_sounding(store.path).examine()
    folding = counters_of(store, 0)
    result = device_portraits(store, examination.devices[0], store.machine, folding)
    return {item.family.split("_")[0]: item for item in result}


def test_counters_reach_the_measures(seen):
    for place, name in enumerate(("gemm", "exp", "tiny")):
        by_name = {measure.name: measure for measure in seen[name].measures}
        levels = {base(counter): values[place] for counter, values in hand_made.COUNTERS.items()}
        for measure, counter in (
            ("tensor", "sm__pipe_tensor_cycles_active_realtime"),
            ("xu", "sm__inst_executed_pipe_xu_realtime"),
            ("l2", "lts__t_sector_throughput"),
        ):
            assert abs(by_name[measure].value - levels[counter]) < 5 * by_name[measure].error + 0.2
        stored, active = levels["tpc__warps_active_shader_cs_realtime"], levels["sm__cycles_active"]
        assert by_name["occupancy"].value == pytest.approx(100 * stored / active, abs=4)


def test_what_limits_each_is_found(seen):
    assert seen["gemm"].bound == "tensor cores" and seen["gemm"].used == pytest.approx(0.86, abs=0.01)
    assert seen["exp"].bound == "special functions" and seen["exp"].used == pytest.approx(0.92, abs=0.01)
    assert seen["tiny"].bound == "short launches"
    assert {"grid_covers", "local_per_thread"} <= {reason.measure for reason in seen["tiny"].reasons}
    assert seen["gemm"].occupancy.limiters == ["registers", "shared memory"]


def test_the_roofline_has_every_level_also_without_a_formula(seen):
    levels = {level.name: level for level in seen["exp"].roofline}
    assert seen["exp"].work.flops is None
    assert {"DRAM", "L2", "L1 and shared", "FP32 pipe", "tensor cores"} <= set(levels)
    assert levels["DRAM"].rate == pytest.approx(0.5 * 4.8e12, rel=0.02)
    assert levels["FP32 pipe"].rate == pytest.approx(0.2 * 67e12, rel=0.02)
    assert levels["DRAM"].intensity == pytest.approx(levels["FP32 pipe"].rate / levels["DRAM"].rate, rel=0.1)
    assert levels["L2"].rate is None and levels["L2"].used == pytest.approx(0.22, abs=0.01)


def measure(name: str, value: float) -> Measure:
    return Measure(name, name, "pipes", value, "%", 0.0, 1, "PM sampling", "")


def test_the_use_of_a_pipe_is_flops_only_where_the_formula_agrees():
    on = hardware({"gpus": [{"name": "NVIDIA H200", "compute_capability": "9.0"}]}, 0)
    busy = [measure("tensor", 50.0), measure("fma", 10.0)]
    half = 0.5 * on.arithmetic("matmul.bf16")[0]
    cases = {half: True, half / 1.9: True, half / 2.1: False, half * 2.1: False, None: False}
    for flops, said in cases.items():
        launch = Launch(1.0, flops=flops, unit="matmul.bf16")
        tensor = next(level for level in levels(busy, launch, on) if level.name == "tensor cores")
        assert (tensor.rate is not None, tensor.why == "") == (said, said)
        assert tensor.used == 0.5 and tensor.ceiling


def test_a_share_of_l2_is_worth_what_kernels_of_known_bytes_agree_on():
    parts = ((12, 0.99), (25, 1.0), (40, 1.01), (30, 0.4))
    streams = [(share, 0.01, 10.3e10 * share * part) for share, part in parts]
    result = cache_peak([*streams, (0.4, 0.001, 5e12), (20, 5.0, 9e12), (50, 0.1, 9e12)])
    assert result == pytest.approx(10.3e12)
    assert cache_peak(streams[:2]) is None and cache_peak([]) is None


def test_l2_has_bytes_intensity_and_the_measured_ceiling_or_says_why_not():
    rates = {"hbm.read": 4.6e12, "matmul.bf16": 8e14, "l2.read": 9.5e12}
    ceilings = [
        {"id": name, "value": value, "unit": "", "low": value, "high": value, "samples": 1, "device": 0}
        for name, value in rates.items()
    ]
    gpu = {"index": 0, "name": "NVIDIA H200", "compute_capability": "9.0"}
    on = hardware({"gpus": [gpu], "ceilings": ceilings}, 0)
    record = {"value": 20.0, "error": 0.1, "samples": 9, "source": "PM sampling"}
    rows = [
        {"counter": f"LTS.TriageCompute.{name}.avg.pct_of_peak_sustained_elapsed", **record}
        for name in ("lts__t_sector_throughput_srcunit_tex", "lts__t_sector_throughput")
    ]
    known = on._replace(figures=on.figures | {"l2_peak": 1e13})
    for device, rate in ((known, 2e12), (on, None)):
        measures, _ = measures_of(KnownValues(rows, facts_of(device, Launch(1.0))))
        (level,) = (x for x in levels(measures, Launch(1.0, flops=4e12), device) if x.name == "L2")
        assert (level.rate, level.ceiling) == (rate, 9.5e12)
        assert level.intensity == (2.0 if rate else None)
        assert level.used == pytest.approx(2 / 9.5 if rate else 0.2)
        assert bool(level.why) == (rate is None)


def test_families_that_share_counters_say_so(tmp_path):
    store = hand_made.make(tmp_path / "k.fathom")
    folding = counters_of(store, 0)
    gemm, exp = list(hand_made.FAMILIES)[:2]
    static = pl.col("source") == "static"
    group = pl.when(~static & (pl.col("family") == gemm)).then(pl.lit(f"{gemm} + {exp}")).otherwise("family")
    frame = folding.frame.with_columns(group.alias("family")).filter(static | (pl.col("family") != exp))
    device = open_sounding(store.path).examine().devices[0]
    folding = folding._replace(frame=frame)
    by_family = {p.family: p for p in device_portraits(store, device, store.machine, folding)}
    assert by_family[gemm].counted_as == by_family[exp].counted_as == f"{gemm} + {exp}"


def test_a_launch_shape_of_a_pool_names_the_source_of_its_counters(tmp_path):
    store = hand_made.make(tmp_path / "k.fathom")
    folding = counters_of(store, 0)
    gemm, exp, tiny = hand_made.FAMILIES
    label, static = "exp_kernel, 4 launch shapes", pl.col("source") == "static"
    pooled = pl.when(~static & (pl.col("family") == exp)).then(pl.lit(label)).otherwise("family")
    frame = folding.frame.with_columns(pooled.alias("family"))
    device = open_sounding(store.path).examine().devices[0]

    def portraits_with(*pools):
        item = folding._replace(frame=frame, pools=pools)
        return {p.family: p for p in device_portraits(store, device, store.machine, item)}

    said = portraits_with(Pool(0, label, (exp, tiny)))
    assert (said[exp].counted_as, said[tiny].counted_as, said[gemm].counted_as) == (label, tiny, gemm)
    assert {row["family"] for row in said[exp].counters} == {exp, label}
    for other in (portraits_with(), portraits_with(Pool(1, label, (exp,)))):
        assert not other[exp].counted_as and {row["source"] for row in other[exp].counters} == {"static"}


def test_a_sounding_without_counters_still_has_portraits(tmp_path):
    store = hand_made.make(tmp_path / "k.fathom", counters=False)
    examination = open_sounding(store.path).examine()
    folding = counters_of(store, 0)
    result = device_portraits(store, examination.devices[0], store.machine, folding)
    assert len(result) == 3 and examination.sounding.counters is False
    large = device_portraits(store, examination.devices[0], store.machine, folding, result[1].ms)
    assert [item.family for item in large] == [item.family for item in result[:2]]
    for item in result:
        assert not item.counted_as and {m.source for m in item.measures} <= {"static", "timeline"}
        assert any("record with" in abstained.why for abstained in item.abstained)
        assert np.isfinite(item.time_us["mean"])


def test_both_counters_of_occupancy_say_the_same_of_recorded_kernels():
    """One streams in a separate pass, the other in the first: a recording may lack either."""
    differences = []
    with unpacked(RECORDINGS / "kernels.2.tar.xz") as soundings:
        for folder in soundings:
            frame = counters_of(open_store(folder), 0).frame
            by_name = dict(zip(frame["counter"].str.split(".").list.first(), frame["value"], strict=True))
            if "sm__warps_active" in by_name and "tpc__warps_active_shader_cs_realtime" in by_name:
                differences.append(
                    abs(by_name["sm__warps_active"] - by_name["tpc__warps_active_shader_cs_realtime"])
                )
    assert len(differences) >= 8
    assert median(differences) < 1
