"""Derived measures are data: their formulas are safe, complete and right; what limits a family follows."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom import open as open_sounding
from fathom.analysis.folding import counters_of
from fathom.analysis.folding.kinds import base
from fathom.analysis.measures import catalogue, portraits
from fathom.analysis.measures.catalogue import SOURCES
from fathom.analysis.measures.evaluate import Known, measures_of
from fathom.analysis.measures.facts import facts_of, fits, hardware
from fathom.analysis.measures.formula import FormulaError, MissingError, evaluate, names, parse
from tests import kernel_soundings as hand_made

NAMES = Path(__file__).parents[2] / "shared" / "h200-counters.json"
FACTS = {"multiprocessors", "dram_peak", "link_peak", "pcie_peak", "l1_peak", "sm_clock", "sm_clock_most"}
FACTS |= {
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
        assert error == pytest.approx(math.hypot(100 / b * of_a, by_b * of_b), rel=0.01, abs=1e-6)


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
    launch = {"threads": 128, "registers": 32, "shared_bytes": 0}
    facts = facts_of(hardware({"gpus": [hand_made.GPU]}, 0), launch, {"bytes_a_launch": 1e6}, 1e-4)
    found, silent = measures_of(Known(rows, facts))
    assert len([one for one in found if one.source == "PM sampling"]) >= 50
    assert all(silent.values())
    assert all("not sampled" in why for why in silent.values())


def test_a_measure_takes_the_first_source_that_is_there():
    ncu = {"counter": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", "source": "ncu"}
    pm = {"counter": "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"}
    told = {"value": 40.0, "error": 0.5, "samples": 1}
    only = {m.name: m for m in measures_of(Known([ncu | told], {}))[0]}
    assert only["tensor"].source == "ncu" and only["tensor"].value == 40.0
    pm |= {"value": 41.0, "error": 0.2, "samples": 99, "source": "PM sampling"}
    both = {m.name: m for m in measures_of(Known([ncu | told, pm], {}))[0]}
    assert (both["tensor"].source, both["tensor"].samples) == ("PM sampling", 99)


def test_a_device_without_figures_has_no_invented_ones():
    for machine in ({}, {"gpus": []}, {"gpus": [{"index": 0, "name": "no such chip"}]}):
        on = hardware(machine, 0)
        assert on.chip is None and on.figures == {} and on.memory() is None
        assert fits(on, {"threads": 128, "registers": 32, "shared_bytes": 0}) is None


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    store = hand_made.make(tmp_path_factory.mktemp("kernels") / "k.fathom")
    examination = open_sounding(store.path).examine()
    folding = counters_of(store, 0)
    found = portraits(store, examination.devices[0], store.machine, folding)
    return {one.family.split("_")[0]: one for one in found}


def test_counters_reach_the_measures(seen):
    for place, name in enumerate(("gemm", "exp", "tiny")):
        told = {measure.name: measure for measure in seen[name].measures}
        levels = {base(counter): values[place] for counter, values in hand_made.COUNTERS.items()}
        for measure, counter in (
            ("tensor", "sm__pipe_tensor_cycles_active_realtime"),
            ("xu", "sm__inst_executed_pipe_xu_realtime"),
            ("l2", "lts__t_sector_throughput"),
        ):
            assert abs(told[measure].value - levels[counter]) < 5 * told[measure].error + 0.2
        active, away = levels["tpc__warps_active_realtime"], levels["tpc__warps_inactive_sm_active_realtime"]
        assert told["occupancy"].value == pytest.approx(100 * active / (active + away), abs=4)


def test_what_limits_each_is_found(seen):
    assert seen["gemm"].bound == "tensor cores" and seen["gemm"].used == pytest.approx(0.86, abs=0.01)
    assert seen["exp"].bound == "special functions" and seen["exp"].used == pytest.approx(0.92, abs=0.01)
    assert seen["tiny"].bound == "short launches"
    assert {"grid_covers", "local_per_thread"} <= {reason.measure for reason in seen["tiny"].reasons}
    assert seen["gemm"].occupancy["limiters"] == ["registers", "shared memory"]


def test_the_roofline_has_every_level_also_without_a_formula(seen):
    levels = {level.name: level for level in seen["exp"].roofline}
    assert seen["exp"].work["flops"] is None
    assert {"DRAM", "L2", "L1 and shared", "FP32 pipe", "tensor cores"} <= set(levels)
    assert levels["DRAM"].rate == pytest.approx(0.5 * 4.8e12, rel=0.02)
    assert levels["FP32 pipe"].rate == pytest.approx(0.2 * 67e12, rel=0.02)
    assert levels["DRAM"].intensity == pytest.approx(levels["FP32 pipe"].rate / levels["DRAM"].rate, rel=0.1)
    assert levels["L2"].rate is None and levels["L2"].used == pytest.approx(0.22, abs=0.01)


def test_families_that_share_counters_say_so(tmp_path):
    store = hand_made.make(tmp_path / "k.fathom")
    folding = counters_of(store, 0)
    gemm, exp = list(hand_made.FAMILIES)[:2]
    static = pl.col("source") == "static"
    group = pl.when(~static & (pl.col("family") == gemm)).then(pl.lit(f"{gemm} + {exp}")).otherwise("family")
    frame = folding.frame.with_columns(group.alias("family")).filter(static | (pl.col("family") != exp))
    device = open_sounding(store.path).examine().devices[0]
    found = {p.family: p for p in portraits(store, device, store.machine, folding._replace(frame=frame))}
    assert found[gemm].counted_as == found[exp].counted_as == f"{gemm} + {exp}"


def test_a_sounding_without_counters_still_has_portraits(tmp_path):
    store = hand_made.make(tmp_path / "k.fathom", counters=False)
    examination = open_sounding(store.path).examine()
    folding = counters_of(store, 0)
    found = portraits(store, examination.devices[0], store.machine, folding)
    assert len(found) == 3 and examination.sounding["counters"] is False
    for one in found:
        assert not one.counted_as and {m.source for m in one.measures} <= {"static", "timeline"}
        assert any("record with" in abstained.why for abstained in one.abstained)
        assert np.isfinite(one.time_us["mean"])
