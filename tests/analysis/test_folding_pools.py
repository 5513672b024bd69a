"""Launch shapes of one function that are each too rare are pooled, and no others."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.counters.counters_coverage import of_each
from fathom.analysis.folding import bare, by_family, counters_of
from fathom.analysis.folding.counters import fold_samples
from fathom.analysis.folding.families import pools_of, rare_of
from fathom.analysis.folding.parts import DIFFERENT, _split_evenly
from fathom.analysis.folding.results import Folding, facts_from, pools_from
from fathom.recorder import folded
from fathom.sounding import Manifest, Rank, Writer, open_store
from tests.support import folding_truth as truth

LARGE, SHAPES = 5, 30
COPY = "copy_kernel<float>"
OFTEN = f"{COPY} 512x1x1·128x1x1"  # the shape of that function that has samples enough


def labelled(result):
    """The made-up families under names: large kernels, then shapes of one function, the first often."""
    names = [f"large_{k} {k + 1}x1x1·256x1x1" for k in range(LARGE)]
    names += [OFTEN, *(f"{COPY} {k + 1}x2x1·128x1x1" for k in range(len(result.labels) - LARGE - 1))]
    other = dict(zip(result.labels, names, strict=True))
    family = result.kernels["family"].replace_strict(other)
    result.kernels = result.kernels.with_columns(family=family, name=family.str.split(" ").list.first())
    result.labels = names
    return result


def growing(seed, *, lengths_us, levels_by=None, bursts=3, launches=8, noise=1.0):
    """Steps of large kernels; each copies in a new shape, `launches` times and never again."""
    random = np.random.default_rng(seed)
    levels = random.uniform(5, 95, (LARGE + 1 + SHAPES, 5))
    lengths = np.linspace(*lengths_us, SHAPES)
    if levels_by is not None:
        levels[LARGE + 1 :] = levels_by(lengths)[:, None]
    usual = np.concatenate((random.uniform(15, 90, LARGE), [30.0], lengths))
    order = (
        random.permutation(SHAPES) if levels_by is None else np.arange(SHAPES).reshape(-1, bursts).T.ravel()
    )
    runs = []
    for shapes in np.array_split(order, bursts):
        rows, now = [], 0.0
        for shape in shapes:
            for _ in range(launches):
                for family in (*random.permutation(LARGE + 1), LARGE + 1 + shape):
                    now += random.choice((0.0, random.exponential(8_000)))
                    length = 1e3 * usual[family] * random.uniform(0.98, 1.02)
                    rows.append((round(now), round(now + length), int(family)))
                    now += length
        runs.append(rows)
    return labelled(truth.sampled(random, runs, levels, noise=noise)), runs


def pooled_truth(result, runs, pool):
    """Brute force: the mean over the time of all launches of the pool's shapes."""
    rows = [row for rows in runs for row in rows if result.labels[row[2]] in pool.families]
    time = np.array([end - start for start, end, _ in rows], float)
    return time @ result.levels[[family for *_, family in rows]] / time.sum()


def against(result, runs):
    """The pool's rows, with how many standard errors each lies off the truth, and by how much."""
    folding = fold_samples(result.samples, result.kernels, [result.names])
    (pool,) = folding.pools
    rows = folding.frame.filter(family=pool.label)
    known = dict(zip(map(bare, result.names), pooled_truth(result, runs, pool), strict=True))
    off = rows["value"] - rows["counter"].replace_strict(known, return_dtype=pl.Float64)
    return folding, pool, (off / rows["error"]).to_numpy(), off.to_numpy()


def test_a_pool_is_the_mean_over_the_time_of_its_launches_within_its_error():
    scores = [against(*growing(seed, lengths_us=(2.0, 2.6), levels_by=np.copy))[2] for seed in range(8)]
    assert np.mean(np.abs(scores) < 1.96) >= 0.85 and np.abs(scores).max() < 5
    wild = [against(*growing(seed, lengths_us=(2.0, 2.6)))[2:] for seed in range(4)]  # shapes of any level
    assert np.mean([np.abs(score) < 1.96 for score, _ in wild]) >= 0.95
    assert abs(np.mean([off for _, off in wild])) < 1.0  # points


def test_long_launches_do_not_count_for_more_than_their_time():
    result = [
        against(*growing(seed, lengths_us=(1.0, 7.0), levels_by=lambda us: 12 * us, noise=0.3, launches=2))
        for seed in range(6)
    ]
    assert all(len(pool.families) > 0.8 * SHAPES for _, pool, *_ in result)
    assert (
        abs(np.mean([off for *_, off in result])) < 1.5
    )  # points; one value for all leans to long ones, by 5


def test_what_is_told_alone_stays_as_it_was():
    result, _ = growing(1, lengths_us=(2.0, 2.6))
    folding = fold_samples(result.samples, result.kernels, [result.names])
    (pool,) = folding.pools
    assert pool.label == f"{COPY}, {SHAPES} launch shapes" and OFTEN not in pool.families
    assert set(folding.frame["family"]) == {*result.labels[: LARGE + 1], pool.label}
    assert not [absence for absence in folding.abstained if COPY in absence.what]
    separate = result.kernels.with_columns(  # the same program with a function per rare shape
        family=pl.when(pl.col("family").is_in(pool.families))
        .then(pl.col("family").str.replace_all(" ", "_") + " 1x1x1·1x1x1")
        .otherwise("family")
    )
    before = fold_samples(result.samples, separate, [result.names])
    assert not before.pools
    both = folding.frame.join(before.frame, on=["family", "counter", "samples"], suffix="_before")
    assert len(both) == (LARGE + 1) * len(result.names)
    assert np.allclose(both["value"], both["value_before"]) and np.allclose(
        both["error"], both["error_before"]
    )


def test_shapes_that_all_have_samples_enough_are_no_pool():
    result, _ = growing(2, lengths_us=(25.0, 40.0), launches=20)
    folding = fold_samples(result.samples, result.kernels, [result.names])
    assert not folding.pools and set(folding.frame["family"]) == set(result.labels)


def test_counters_sampled_while_other_shapes_ran_have_larger_errors():
    """A group of counters a burst, and shapes that grow from burst to burst."""
    random = np.random.default_rng(3)
    lengths = np.linspace(2.0, 6.0, 2 * SHAPES)
    levels = random.uniform(5, 95, (LARGE + 1 + 2 * SHAPES, 5))
    levels[LARGE + 1 :] = 100 / lengths[:, None]
    usual = np.concatenate((random.uniform(15, 90, LARGE), [30.0], lengths))
    runs: list[list[tuple[int, int, int]]] = []
    for shapes in np.array_split(np.arange(2 * SHAPES), 2):
        runs.append([])
        now = 0.0
        for family in (f for s in shapes for _ in range(12) for f in (*range(LARGE + 1), LARGE + 1 + s)):
            now += random.exponential(5_000)
            runs[-1].append((round(now), round(now + 1e3 * usual[family]), int(family)))
            now += 1e3 * usual[family]
    result = labelled(truth.sampled(random, runs, levels, noise=0.3))
    samples = result.samples.with_columns(group=pl.col("burst").cast(pl.Int32))
    folding = fold_samples(samples, result.kernels, [result.names, [f"{name}_b" for name in result.names]])
    (pool,) = folding.pools
    rows = folding.frame.filter(family=pool.label)
    level = pooled_truth(result, runs, pool)[0]
    assert len(rows) and (abs(rows["value"] - level) < 2.5 * rows["error"]).all()
    assert (rows["error"] > 0.1 * rows["value"]).all()


@given(
    st.dictionaries(st.sampled_from([f"f{k} {n}x1·1x1" for k in range(3) for n in range(4)]), st.booleans())
)
def test_pools_are_of_one_function_and_their_labels_of_one_pool(said):
    functions = {family: ("compute", family.split()[0]) for family in said}
    rare = {family for family, enough in said.items() if not enough}
    pools = pools_of(functions, rare, set(), 0)
    labels = [pool.label for pool in pools]
    assert len(set(labels)) == len(labels) and not set(labels) & set(said)
    for pool in pools:
        assert set(pool.families) <= rare and len(pool.families) > 1
        assert {functions[family] for family in pool.families} == {("compute", pool.label.split(",")[0])}
        assert set(by_family(pools, 1)) == set()
    assert pools_from(facts_from(Folding(pl.DataFrame(), [], [], pools))) == pools


def test_functions_of_one_name_and_two_kinds_are_not_mixed():
    functions = {f"f {n}x1·1x1": (kind, "f") for n, kind in enumerate(("compute", "compute", "collective"))}
    assert not pools_of(functions, set(functions), set(), 0)


def test_a_family_is_rare_if_fewer_than_half_of_the_counters_describe_it():
    assert rare_of({"a": 50, "b": 49, "c": 8}, {"a": 100, "b": 100, "c": 8, "d": 100}) == {"b", "c", "d"}


@pytest.mark.parametrize("facts", [None, "x", 3, [1], [{}], [{"device": "0", "label": 1, "families": 2}]])
def test_facts_that_are_no_pools_are_none(facts):
    assert pools_from({"pools": facts}) == []


@given(st.lists(st.integers(1, 30_000), max_size=60))
def test_lengths_that_differ_are_split_and_none_is_lost(lengths):
    lengths = np.sort(np.array(lengths, np.int64))
    result = _split_evenly(lengths)
    assert np.array_equal(np.concatenate(result), lengths)
    for item in result[:-1]:
        least = item[np.searchsorted(np.cumsum(item), 0.05 * lengths.sum())]
        assert item[-1] <= max(DIFFERENT * item[0], least) or len(result) == 1


def test_a_sounding_without_its_samples_knows_whom_a_pool_tells(tmp_path):
    result, _ = growing(5, lengths_us=(2.0, 2.6))
    writer = Writer(tmp_path / "run.fathom")
    writer.write(0, "kernels", result.kernels)
    writer.write(0, "samples", result.samples)
    store = writer.finish(Manifest(ranks=[Rank(rank=0, facts={"counter_groups": [result.names]})]))
    once = counters_of(store, 0)
    small = counters_of(folded(store, tmp_path / "small.fathom"), 0)
    again = counters_of(folded(open_store(tmp_path / "small.fathom"), tmp_path / "again.fathom"), 0)
    assert once.pools and list(once.pools) == list(small.pools) == list(again.pools)
    assert "pools" not in store.manifest.ranks[0].facts
    rows = small.frame.filter(family=once.pools[0].label)
    assert len(rows) == len(result.names)
    each = of_each(once).filter(source="PM sampling").group_by("family").len()
    assert dict(each.iter_rows()) == dict.fromkeys([*result.labels, once.pools[0].label], len(result.names))


def test_without_samples_there_are_no_pools():
    result, _ = growing(4, lengths_us=(2.0, 2.6))
    folding = fold_samples(result.samples.clear(), result.kernels, [result.names])
    assert not folding.pools and folding.frame.is_empty()
