"""Samples of a whole device become counters of kernel families: what must hold, on devices that are known."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom import open as open_sounding
from fathom.analysis.folding import bare, counters_of, kind_of, static_attributes
from fathom.analysis.folding.counters import fold_samples
from fathom.analysis.folding.fit import collinear
from fathom.analysis.folding.parts import parts_of
from fathom.analysis.folding.shares import shares
from fathom.analysis.folding.states import states_of
from fathom.sounding import Manifest, Rank, Writer, conform
from tests.support import folding_truth as truth
from tests.support.folding_truth import ACTIVE
from tests.support.paths import EXAMPLES, SHARED

EXAMPLE = EXAMPLES / "train_gpt-h200.fathom.zip"
NAMES = SHARED / "h200-counters.json"


def one_stream(seed, *, families=20, counters=6, bursts=4, steps=6, interval_us=20.0, **options):
    random = np.random.default_rng(seed)
    levels = random.uniform(0, 100, (families, counters))
    levels[:, 0] = random.uniform(60, 100, families)
    levels[:, 1:][random.random((families, counters - 1)) < 0.1] = 0.0
    runs = truth.program(random, families, steps * bursts, high_us=1000)
    edges = np.linspace(0, len(runs), bursts + 1).astype(int)
    parts = [runs[first:last] for first, last in pairwise(edges.tolist())]
    parts = [[(s - part[0][0], e - part[0][0], f) for s, e, f in part] for part in parts]
    return truth.sampled(random, parts, levels, interval_us=interval_us, **options)


def folded(result, **changes):
    return fold_samples(changes.get("samples", result.samples), result.kernels, [result.names])


def against(result, frame):
    """Each row with the true value, and how many standard errors it is off."""
    known = [
        {"family": label, "counter": bare(name), "truth": result.levels[k, c]}
        for k, label in enumerate(result.labels)
        for c, name in enumerate(result.names)
    ]
    joined = frame.join(pl.DataFrame(known), on=["family", "counter"])
    return joined.with_columns(z=(pl.col("value") - pl.col("truth")) / pl.col("error"))


def large(result):
    """Families with at least 1 % of the kernels' time."""
    time = (pl.col("end_ns") - pl.col("start_ns")).sum()
    share = (
        result.kernels.group_by("family").agg(time=time).with_columns(pl.col("time") / pl.col("time").sum())
    )
    return set(share.filter(pl.col("time") >= 0.01)["family"])


def test_values_lie_within_their_errors_as_often_as_they_say():
    z = []
    for seed in range(4):
        result = one_stream(seed, bursts=3, interval_us=10 + 13 * seed)
        rows = against(result, folded(result).frame)
        assert large(result) <= set(rows["family"])
        z += rows["z"].to_list()
    assert 0.90 <= np.mean(np.abs(z) < 1.96) <= 0.99


def test_kernels_shorter_than_a_sample_are_told_too():
    random = np.random.default_rng(3)
    levels = random.uniform(10, 90, (5, 4))
    result = truth.sampled(
        random,
        [truth.program(random, 5, 120, low_us=2, high_us=8, gap_us=3) for _ in range(4)],
        levels,
        interval_us=20,
    )
    rows = against(result, folded(result).frame)
    assert rows["family"].n_unique() == 5
    assert rows["z"].abs().max() < 4.5
    assert rows["error"].max() < 12


@pytest.mark.parametrize("seed", range(2))
def test_each_bursts_clock_is_found_within_its_error(seed):
    result = one_stream(seed, reach_us=60.0)
    for item in folded(result).alignment:
        assert not item.why
        assert abs(item.shift_ns - result.shifts[item.burst]) < 5 * item.error_ns + 20
        assert item.error_ns < 1000


def test_bursts_with_little_work_are_aligned_by_the_others():
    random = np.random.default_rng(1)
    levels = random.uniform(5, 90, (12, 6))
    idle = {"low_us": 1, "high_us": 5, "idle_share": 0.9, "gap_us": 150}
    bursts = [truth.program(random, 12, 4, **idle) for _ in range(12)]
    result = truth.sampled(random, bursts, levels, noise=1.0, reach_us=60.0)
    said = [item for item in folded(result).alignment if not item.why]
    assert len(said) >= 10
    off = [abs(item.shift_ns - result.shifts[item.burst]) for item in said]
    assert np.median(off) < 400 and max(off) < 1500


@pytest.mark.parametrize("ramp", [(0, 0), (2000, 3000)])
def test_a_real_timeline_of_74_families_is_resolved_to_a_point(ramp):
    """Kernels as an H200 ran them, eight steps a burst; levels, noise, clocks and slow starts are made up."""
    kernels = open_sounding(EXAMPLE).table("kernels").filter(phase="timeline", burst=6).collect()
    labels = kernels["family"].unique().sort().to_list()
    number = {label: k for k, label in enumerate(labels)}
    begin = int(kernels["start_ns"].min())
    rows = [
        (start - begin, end - begin, number[family])
        for start, end, family in kernels.select("start_ns", "end_ns", "family").iter_rows()
    ]
    random = np.random.default_rng(2)
    levels = random.uniform(0, 100, (len(labels), 6))
    levels[:, 0] = random.uniform(60, 100, len(labels))
    actual = truth.sampled(random, [rows] * 2, levels, interval_us=10, ramp=ramp)
    result = folded(actual)

    said = against(actual, result.frame)
    important = large(actual)
    assert len(important) > 20
    assert important <= set(said["family"])
    said = said.filter(pl.col("family").is_in(list(important)))
    assert (said["z"].abs() < 2.5).mean() > 0.9
    assert said["error"].max() <= 1.5
    assert (said["value"] - said["truth"]).abs().median() <= 0.3


CLOCK = "gpc__cycles_elapsed.avg.per_second"
PRODUCT, COPY, HALF, SHORT = (f"{name} 132x1x1·128x1x1" for name in ("product", "copy", "half", "short"))


def course(label, times, length):
    """Activity, and a unit that waits 3 µs in products and stops early, or works in the first half alone."""
    late = (times >= 3000) & (times < length - 1500)
    unit = {PRODUCT: 80.0 * late, COPY: 5.0, HALF: 60.0 * (times < length / 2), SHORT: 30.0}[label]
    busy = np.where((times >= 500) & (times < length - 300), 95.0, 40.0)
    return np.column_stack((busy, unit + 0 * times, 50.0 * (label != SHORT) + 0 * times))


def a_step(random, launches=60):
    usual = {PRODUCT: (12_000, 28_000), COPY: (22_000,), HALF: (39_000,), SHORT: (3_000,)}
    labels = random.choice(list(usual), launches)
    return [
        (label, int(random.choice(usual[label]) * random.uniform(0.99, 1.01))) for label in labels.tolist()
    ]


@pytest.mark.parametrize("clock", [None, lambda label: 1.7e9 if label == PRODUCT else 1.98e9])
def test_the_course_within_a_launch_and_the_clock_do_not_bend_values(clock):
    """Products of two lengths work neither at first nor at last, and slow the clock."""
    random = np.random.default_rng(4)
    bursts = [[row for _ in range(6) for row in a_step(random)] for _ in range(4)]
    kernels, samples, truths = truth.courses(random, bursts, course, clock=clock)
    names = [ACTIVE, *(truth.counter(k) for k in range(2)), CLOCK]
    frame = fold_samples(samples, kernels, [names]).frame
    by_name = {(f, c): v for f, c, v in frame.select("family", "counter", "value").iter_rows()}
    for label in (PRODUCT, COPY, HALF):
        for name, value in zip(names[:-1], truths[label], strict=True):
            assert by_name[label, bare(name)] == pytest.approx(value, abs=0.8)
    if clock:
        assert by_name[PRODUCT, CLOCK] == pytest.approx(1.7e9, rel=0.01)


def test_a_first_burst_that_began_long_after_its_call_is_found():
    result = one_stream(7, bursts=2, steps=4, reach_us=5.0)
    late = pl.when(pl.col("burst") == 0).then(1_490_000).otherwise(0)
    moved = result.samples.with_columns(pl.col("start_ns") + late, pl.col("end_ns") + late)
    first, second = folded(result, samples=moved).alignment
    assert first.shift_ns + 1_490_000 == pytest.approx(result.shifts[0], abs=2000)
    assert second.shift_ns == pytest.approx(result.shifts[1], abs=2000)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 60_000), st.integers(1, 40_000), st.integers(0, 2)), min_size=1))
def test_parts_hold_the_time_of_their_states_and_no_other(rows):
    starts, lengths, family = np.array(rows).T
    members = [()]
    total = states_of(starts, starts + lengths, family, members)
    parts = parts_of({0: total})[0]
    assert (parts.spans.starts[1:] >= parts.spans.ends[:-1]).all()
    values = np.bincount(parts.owner[parts.state], parts.spans.ends - parts.spans.starts, len(members))
    assert (
        values.tolist()
        == np.bincount(total.state, total.spans.ends - total.spans.starts, len(members)).tolist()
    )
    assert (parts.owner[parts.level] == parts.owner).all()


def test_a_drift_between_the_clocks_is_followed():
    actual = one_stream(1, bursts=1, steps=80, drift_ppm=60.0)
    result = folded(actual)
    (alignment,) = result.alignment
    assert alignment.drift_ppm == pytest.approx(60.0, abs=15)
    rows = against(actual, result.frame)
    assert (rows["z"].abs() < 3).mean() > 0.9


def test_samples_that_nothing_explains_are_refused():
    actual = one_stream(2)
    noise = np.random.default_rng(0).uniform(0, 100, (actual.samples.height, len(actual.names)))
    result = folded(actual, samples=actual.samples.with_columns(values=pl.Series(noise.tolist())))
    assert all("no shift" in item.why for item in result.alignment)
    assert result.frame.is_empty()
    assert len(result.abstained) == len(actual.shifts)


def streams(steps=40):
    """a and b always together on two streams; c alone; d beside c's second half in every other step."""
    rows, now = [], 0
    random = np.random.default_rng(5)
    for step in range(steps):
        rows += [(now, now + 100_000, 0), (now, now + 100_000, 1)]
        now += 100_000 + int(random.exponential(20_000))
        rows += [(now, now + 80_000, 2)]
        if step % 2:
            rows += [(now + 40_000, now + 120_000, 3)]
            now += 40_000
        now += 80_000 + int(random.exponential(30_000))
    levels = random.uniform(10, 45, (4, 3))
    return truth.sampled(random, [rows, rows], levels, interval_us=15), levels


def test_families_that_always_overlap_are_a_group_and_others_are_alone():
    result, levels = streams()
    frame = folded(result).frame.filter(counter=bare(result.names[0]))
    by_name = dict(zip(frame["family"], zip(frame["value"], frame["error"], strict=True), strict=True))
    both = f"{result.labels[0]} + {result.labels[1]}"
    assert set(by_name) == {both, result.labels[2], result.labels[3]}
    for name, value in ((both, levels[0, 0] + levels[1, 0]), (result.labels[2], levels[2, 0])):
        assert abs(by_name[name][0] - value) < 5 * by_name[name][1]


def test_families_that_samples_cannot_distinguish_are_merged():
    design = np.array([[0.5, 0.25, 0.25, 0.0], [0.2, 0.4, 0.4, 0.0], [0.0, 0.1, 0.1, 0.8]])
    assert collinear(design.T @ design).tolist() == [0, 1, 1, 2]
    assert collinear(np.diag([1.0, 2.0, 0.0])).tolist() == [0, 1, 2]


@st.composite
def busy(draw):
    count = draw(st.integers(0, 12))
    starts = draw(st.lists(st.integers(0, 300), min_size=count, max_size=count))
    lengths = draw(st.lists(st.integers(0, 60), min_size=count, max_size=count))
    family = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    return np.array(starts, int), np.array(starts, int) + np.array(lengths, int), np.array(family, int)


@settings(max_examples=150)
@given(busy(), st.integers(1, 40), st.integers(-50, 50))
def test_shares_are_those_of_counting_every_nanosecond(kernels, interval, first):
    starts, ends, family = kernels
    members = [()]
    states = states_of(starts, ends, family, members)
    edges = np.arange(first, first + 12 * interval + 1, interval)
    dense = shares(states, edges[:-1], edges[1:]).dense(0, len(edges) - 1)
    expected = np.zeros((len(edges) - 1, len(members)))
    for row, (low, high) in enumerate(pairwise(edges.tolist())):
        for t in range(low, high):
            running = tuple(sorted({int(family[k]) for k in range(len(starts)) if starts[k] <= t < ends[k]}))
            expected[row, members.index(running)] += 1 / interval
    np.testing.assert_allclose(dense, expected, atol=1e-9)
    np.testing.assert_allclose(dense.sum(axis=1), 1.0)


def test_ratios_are_ratios_of_sums_where_the_denominator_streams():
    prefix = "LTS.TriageCompute.lts__"
    names = [
        truth.ACTIVE,
        f"{prefix}t_sector_throughput.avg.pct_of_peak_sustained_elapsed",
        f"{prefix}average_t_sector_hit_rate_realtime.ratio",
    ]
    random = np.random.default_rng(8)
    traffic, hits = np.array([80.0, 5.0, 30.0]), np.array([0.2, 0.9, 0.6])
    numerator = np.column_stack([[90.0, 90.0, 80.0], traffic, traffic * hits])
    rows = truth.program(random, 3, 400, low_us=4, high_us=30)
    result = truth.sampled(random, [rows, rows], numerator, interval_us=20, noise=0.5, names=names)
    values = np.array(result.samples["values"].to_list())
    with np.errstate(invalid="ignore"):
        values[:, 2] /= values[:, 1]  # 0/0 where nothing was asked for
    samples = result.samples.with_columns(values=pl.Series(values.tolist()))
    frame = folded(result, samples=samples).frame.filter(pl.col("counter").str.ends_with("realtime.ratio"))
    assert frame.height == 3
    for label, expected in zip(result.labels, hits, strict=True):
        value, error = frame.filter(family=label).select("value", "error").row(0)
        assert abs(value - expected) < 5 * error
        assert error < 0.05


def test_sums_become_rates():
    name = "SM_A.TriageCompute.sm__inst_executed.sum"
    random = np.random.default_rng(4)
    rows = truth.program(random, 3, 300, low_us=10, high_us=60)
    levels = np.column_stack([[90.0, 80.0, 70.0], [1e3, 2e3, 3e3]])
    result = truth.sampled(random, [rows], levels, interval_us=20, names=[truth.ACTIVE, name])
    counted = [[active, count * 20e-6] for active, count in result.samples["values"].to_list()]
    frame = folded(result, samples=result.samples.with_columns(values=pl.Series(counted))).frame
    rows = frame.filter(counter="sm__inst_executed.sum").sort("family")
    assert rows["unit"].unique().to_list() == ["/s"]
    assert rows["value"].to_list() == pytest.approx([1e3, 2e3, 3e3], rel=0.05)


def test_gaps_in_one_counter_leave_the_others_alone():
    actual = one_stream(6)
    values = np.array(actual.samples["values"].to_list())
    values[::3, 2] = np.nan
    values[:, 3] = np.nan
    result = folded(actual, samples=actual.samples.with_columns(values=pl.Series(values.tolist())))
    frame = folded(actual).frame
    assert set(frame["counter"]) - set(result.frame["counter"]) == {bare(actual.names[3])}
    rows = against(actual, result.frame)
    assert (rows["z"].abs() < 3).mean() > 0.95
    untouched = bare(actual.names[1])
    both = result.frame.join(frame, on=["family", "counter"], suffix="_whole").filter(counter=untouched)
    assert both.height == 20  # the clocks are found a little differently, and nothing else
    assert ((both["value"] - both["value_whole"]).abs() < both["error"]).all()


def test_what_cannot_be_folded_is_said():
    result = one_stream(7, bursts=2, steps=3)
    nothing = fold_samples(conform("samples", pl.DataFrame()), result.kernels, [result.names])
    assert nothing.frame.is_empty() and "no counters were sampled" in nothing.abstained[-1].why
    unnamed = fold_samples(result.samples, result.kernels, None)
    assert "does not say which counters" in unnamed.abstained[0].why
    idle = fold_samples(result.samples, result.kernels.clear(), [result.names])
    assert idle.frame.is_empty() and "no kernel was recorded" in idle.abstained[0].why
    few = fold_samples(result.samples.head(5), result.kernels, [result.names])
    assert "only 5 samples" in few.abstained[0].why


@pytest.mark.parametrize("groups", [[], ["x"], [[]], {"0": ["a"]}, "abc", 7, [[1, 2]], [None]])
def test_hostile_names_of_groups_end_in_a_message(groups):
    actual = one_stream(7, bursts=1, steps=2)
    result = fold_samples(actual.samples, actual.kernels, groups)
    assert result.frame.is_empty()
    assert result.abstained


def test_damaged_samples_are_left_out_and_said():
    actual = one_stream(9)
    damaged = actual.samples.with_row_index("row").with_columns(
        end_ns=pl.when(pl.col("row") % 50 == 0).then(pl.col("start_ns")).otherwise("end_ns"),
        values=pl.when(pl.col("row") % 70 == 1).then(pl.col("values").list.head(1)).otherwise("values"),
    )
    result = folded(actual, samples=damaged.drop("row"))
    assert "damaged samples were left out" in result.abstained[0].why
    assert (against(actual, result.frame)["z"].abs() < 3).mean() > 0.95


def test_groups_are_folded_each_and_the_surer_value_stays():
    result = one_stream(10)
    half = pl.col("burst") < 2
    second = result.samples.with_columns(group=pl.when(half).then(0).otherwise(1).cast(pl.Int32))
    names = [result.names, [result.names[0], *(truth.counter(k) for k in range(20, 25))]]
    frame = fold_samples(second, result.kernels, names).frame
    assert frame.select("family", "counter").is_duplicated().sum() == 0
    assert frame["counter"].n_unique() == 11


def test_every_counter_that_streams_has_a_kind():
    if not NAMES.exists():
        pytest.skip("the list of counters is not here")
    for name in json.loads(NAMES.read_text())["streams"]:
        assert kind_of(name), name
        assert "." in bare(name) and bare(name).partition(".")[0].count("__") == 1


def test_launches_tell_their_own_attributes():
    rows = [
        truth.kernel_row("a 4x2x1·128x1x1", 0, 5, 1, grid="4x2x1", block="128x1x1", registers=r)
        for r in (32, 64)
    ]
    rows.append(truth.kernel_row("b", 0, 5, 1, grid="torn", block=None, local_bytes=16))
    frame = static_attributes(conform("kernels", pl.DataFrame(rows, infer_schema_length=None)))
    by_name = {(r["family"][0], r["counter"]): (r["value"], r["error"]) for r in frame.iter_rows(named=True)}
    assert by_name["a", "launch__grid_size"] == (8.0, 0.0)
    assert by_name["a", "launch__block_size"] == (128.0, 0.0)
    assert by_name["a", "launch__registers_per_thread"] == (48.0, pytest.approx(16.0))
    assert {counter for family, counter in by_name if family == "b"} == {"launch__local_mem_per_thread"}


def test_counters_of_a_sounding(tmp_path):
    result = one_stream(11, bursts=2)
    writer = Writer(tmp_path / "a.fathom")
    kernels = result.kernels.with_columns(registers=pl.lit(40, pl.Int32), device=pl.lit(0, pl.Int32))
    writer.write(0, "kernels", kernels)
    writer.write(0, "samples", result.samples)
    store = writer.finish(Manifest(ranks=[Rank(rank=0, facts={"counter_groups": [result.names]})]))
    frame, abstained, alignment, pools = counters_of(store, 0)
    assert not pools
    assert set(frame["source"]) == {"PM sampling", "static"}
    assert len(alignment) == 2
    assert frame.columns == conform("counters", pl.DataFrame()).columns
    assert all(absence.why for absence in abstained)
