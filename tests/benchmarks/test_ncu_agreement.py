"""The comparison with ncu on frames made by hand: pairs, classes of duration, differences, bars."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fathom.analysis.measures.formula import names
from fathom.sounding import Manifest, Rank, Writer, conform
from tests.support.paths import BENCHMARKS, SHARED

sys.path.append(str(BENCHMARKS / "counters"))
import ncu_agreement as agreement
import ncu_pairs

XU = "SM_A.TriageCompute.sm__inst_executed_pipe_xu_realtime.avg.pct_of_peak_sustained_elapsed"
CYCLES = "sm__cycles_elapsed.avg"
NCU_XU = "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed"
HIT, NCU_HIT = "LTS.TriageCompute.lts__average_t_sector_hit_rate_realtime.ratio", "lts__t_sector_hit_rate.pct"
LONG, SHORT, TINY = "gemm<float> 8x1x1·128x1x1", "add 4x1x1·128x1x1", "fill 1x1x1·32x1x1"


def frame(values: dict[str, dict[str, float]], source: str) -> pl.DataFrame:
    rows = [
        {"device": 0, "family": family, "counter": counter, "value": value, "samples": 9, "source": source}
        for family, own in values.items()
        for counter, value in own.items()
    ]
    return conform("counters", pl.DataFrame(rows))


def kernels(took: dict[str, int]) -> pl.DataFrame:
    place = {"device": 0, "stream": 7, "kind": "compute", "phase": "timeline", "start_ns": 0}
    rows = [{**place, "name": name, "family": name, "end_ns": 1000 * us} for name, us in took.items()]
    return conform("kernels", pl.DataFrame(rows))


LIVE = {
    LONG: {XU: 31.0, HIT: 0.62},
    SHORT: {XU: 12.0},
    TINY: {XU: 50.0},
    "alone 1x1x1·1x1x1": {XU: 1.0},
}
NCU = {
    "gemm<float, 4> 8x1x1·128x1x1": {NCU_XU: 30.0, NCU_HIT: 70.0},
    SHORT: {NCU_XU: 17.5},
    TINY: {NCU_XU: 0.0},
    "add 8x1x1·128x1x1": {NCU_XU: 99.0},  # the same kernel of another shape
}
TOOK = {LONG: 40.0, SHORT: 9.0, TINY: 2.0, "alone 1x1x1·1x1x1": 30.0}


def rows() -> list[dict[str, Any]]:
    live = ncu_pairs.side(frame(LIVE, "PM sampling"), "PM sampling", TOOK)
    return ncu_pairs.compare("p", live, ncu_pairs.side(frame(NCU, "ncu"), "ncu", {}))


def test_families_pair_by_name_and_shape_even_where_demanglers_differ() -> None:
    pairs, strange = ncu_pairs.matched(sorted(LIVE), sorted(NCU))
    assert pairs == {LONG: "gemm<float, 4> 8x1x1·128x1x1", SHORT: SHORT, TINY: TINY}
    assert strange == ["add 8x1x1·128x1x1"]


def test_names_that_fit_two_ways_are_no_pair() -> None:
    live = ["k<a> 1x1x1·32x1x1", "k<b> 1x1x1·32x1x1", "j"]
    pairs, strange = ncu_pairs.matched(live, ["k<c> 1x1x1·32x1x1", "j<x>"])
    assert pairs == {} and len(strange) == 2


def test_differences_are_in_points_and_shapes_never_mix() -> None:
    by_name = {(row["family"], row["metric"]): row["difference"] for row in rows()}
    assert by_name == {
        (LONG, "XU"): pytest.approx(1.0),
        (LONG, "L2 hit rate"): pytest.approx(-8.0),
        (SHORT, "XU"): pytest.approx(-5.5),
        (TINY, "XU"): pytest.approx(50.0),
    }


def test_classes_of_duration_are_separate() -> None:
    summary = {(row["kernels"], row["metric"]): row for row in agreement.summarised(rows())}
    long, short = summary["20 µs and more", "XU"], summary["5 to 20 µs", "XU"]
    assert (long["pairs"], long["median"], long["met"]) == (1, pytest.approx(1.0), True)
    assert (short["pairs"], short["median"], short["met"]) == (
        1,
        pytest.approx(5.5),
        None,
    )  # reported, no bar
    assert summary["20 µs and more", "L2 hit rate"]["met"] is False
    assert summary["20 µs and more", "tensor"] == {
        "kernels": "20 µs and more",
        "metric": "tensor",
        "pairs": 0,
    }


CLOCKED = {CYCLES: 84_000.0, NCU_XU: 30.0}


@pytest.mark.parametrize(
    ("live", "ncu", "us", "words"),
    [
        (33.6, CLOCKED, 40.0, ["clock"]),  # 42 µs of 2 GHz under ncu, 40 of 1.875 live
        (33.6, CLOCKED, 42.0, []),
        (45.0, CLOCKED, 40.0, None),
    ],
)
def test_the_same_work_on_other_cycles(live: float, ncu: dict[str, float], us: float, words: Any) -> None:
    ours = ncu_pairs.Side({LONG: {XU: live, ncu_pairs.CLOCK: 1.875e9}}, {}, {}, {LONG: us})
    ours = ours._replace(values={LONG: {ncu_pairs.plain(k): v for k, v in ours.values[LONG].items()}})
    theirs = ncu_pairs.Side({LONG: ncu}, {}, {}, {LONG: 42.0})
    (row,) = ncu_pairs.compare("p", ours, theirs)
    cycles = us * 1875
    assert row["same_work"] == pytest.approx(live - 30.0 * 84_000 / cycles)
    if us == 40.0:  # 15 points are not explained by a tenth of the cycles
        assert bool(row["explained"]) == (words is not None)


@pytest.mark.parametrize(
    ("metric", "differences", "met"),
    [
        ("XU", [0.5, -1.0, 1.0, 3.0], True),
        ("XU", [1.5, 1.5], False),
        ("XU", [0.0] * 9 + [9.0] * 2, False),  # the median is fine, the tail not
        ("DRAM bytes", [1.8, -1.9], True),
    ],
)
def test_bars(metric: str, differences: list[float], met: bool) -> None:
    made = [{"metric": metric, "difference": d, "us": 25.0} for d in differences]
    result = next(r for r in agreement.summarised(made) if r["metric"] == metric and r["pairs"])
    assert result["met"] is met


def test_bars_are_for_values_that_the_sounding_is_sure_of() -> None:
    """A point, or 2 % of the value; the others are counted, and kept beside."""
    made = [
        {"metric": "XU", "difference": 0.5, "us": 25.0, "live": 10.0, "live_error": 0.9},
        {"metric": "XU", "difference": 0.5, "us": 25.0, "live": 90.0, "live_error": 1.7},
        {"metric": "XU", "difference": 20.0, "us": 25.0, "live": 40.0, "live_error": 1.1},
    ]
    result = next(r for r in agreement.summarised(made) if r["metric"] == "XU" and r["pairs"])
    assert (result["pairs"], result["unsure"], result["met"]) == (2, 1, True)
    assert result["with_unsure"] == [pytest.approx(0.5), pytest.approx(18.05)]


def test_every_metric_of_the_issue_is_there_and_can_be_read() -> None:
    wanted = "tensor", "FMA", "ALU", "XU", "LSU pipe", "DRAM bytes", "L2 hit rate", "achieved occupancy"
    assert tuple(ncu_pairs.metrics()) == wanted
    shared = SHARED / "h200-counters.json"
    streams = (
        {ncu_pairs.plain(name) for name in json.loads(shared.read_text())["streams"]}
        if shared.exists()
        else None
    )
    for metric in ncu_pairs.metrics().values():
        used = [set(names(expression)) for expression in metric["live"]]
        assert all(used) and (streams is None or any(item <= streams for item in used))
    once, replayed = agreement.ncu_options(False), agreement.ncu_options(True)
    assert all("--cache-control none" in options for options in (once, replayed))
    assert NCU_XU in once and NCU_XU not in replayed and "--replay-mode application" in replayed
    assert CYCLES in once  # the denominator of the others: no pass more
    assert "--replay-mode" not in agreement.ncu_options(True, "lts__t_sectors_lookup_hit.sum")


def test_the_commands_from_soundings_to_a_committed_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def store(name: str, values: pl.DataFrame) -> str:
        writer = Writer(tmp_path / name)
        writer.write(0, "counters", values)
        writer.write(0, "kernels", kernels({LONG: 40, SHORT: 9}))
        return str(writer.finish(Manifest(ranks=[Rank(0)])).path)

    live, ncu = store("l", frame(LIVE, "PM sampling")), store("n", frame(NCU, "ncu"))
    item, total = tmp_path / "one.json", tmp_path / "all.json"
    for words in (
        ["compare", "p", live, ncu, "--out", str(item)],
        ["summary", str(item), "--out", str(total)],
    ):
        monkeypatch.setattr(sys, "argv", ["ncu_agreement.py", *words])
        agreement.main()
    assert "families that ncu alone has, or that are not distinguished: 1 of 4" in capsys.readouterr().out
    kept = json.loads(total.read_text())
    assert len(kept["pairs"]) == 3 and kept["pairs"][0]["program"] == "p"
    assert "DRAM bytes" in kept["differences"]


def test_nothing_in_common_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []
    for name, source in (("l", "PM sampling"), ("n", "ncu")):
        writer = Writer(tmp_path / name)
        writer.write(0, "counters", frame({name: {XU: 1.0}}, source))
        paths.append(str(writer.finish(Manifest(ranks=[Rank(0)])).path))
    monkeypatch.setattr(sys, "argv", ["x", "compare", "p", *paths, "--out", str(tmp_path / "o.json")])
    with pytest.raises(SystemExit, match="no kernel and metric in common"):
        agreement.main()
