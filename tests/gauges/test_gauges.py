"""Gauges: when a measurement has settled, what is made of timings, and what each formula counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.analysis.work import attention as ledger_attention
from fathom.gauges import FULL, QUICK, catalogue, collectives, host, latency, matmul, memory, vector
from fathom.gauges import attention as gauged_attention
from fathom.gauges.caches import TILE as CACHE_TILE
from fathom.gauges.caches import passes, read_bytes
from fathom.gauges.disk import MIB, file_bytes, offsets
from fathom.gauges.measurements import Measurement, NotHereError, best
from fathom.gauges.timer import ENOUGH_WHEN_SLOW, LEAST, MOST, Effort, Sample, sample, uncertainty

# Ids and units as the other rooms expect them.
CONTRACT = {
    "B/s": "hbm.read hbm.write hbm.copy hbm.triad l2.read shared.read copy.h2d.pinned copy.h2d.pageable "
    "copy.d2h.pinned copy.d2h.pageable copy.peer host.read host.copy host.triad host.cache host.loader "
    "link.peer "
    "disk.read.sequential disk.read.random disk.read.gds collective.all_reduce collective.all_gather "
    "collective.reduce_scatter collective.all_to_all collective.send_recv",
    "FLOP/s": "vector.fp32 vector.fp64 attention.forward.bf16 attention.backward.bf16 host.matmul.fp32 "
    "host.matmul.bf16 host.matmul.fp64 "
    + " ".join(
        f"matmul.{dtype} matmul.{dtype}.sustained"
        for dtype in ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")
    ),
    "1/s": "vector.special",
    "s": "host.dispatch latency.launch latency.graph_node latency.synchronise latency.small_copy "
    "latency.item "
    + " ".join(
        f"{of}.{phase}"
        for of in ("host.pace", "pace")
        for phase in ("forward", "backward", "optimizer", "foreach", "fused")
    ),
}


class FakeClock:
    """Time passes only where a test says so."""

    def __init__(self) -> None:
        self.ns = 0
        self.slept = 0.0

    def now_ns(self) -> int:
        return self.ns

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.spend(seconds)

    def spend(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


class Work:
    """Takes the seconds it is given, one after another, and the last one for ever."""

    def __init__(self, clock: FakeClock, *seconds: float) -> None:
        self.clock, self.seconds, self.counts = clock, list(seconds), list[int]()

    def __call__(self, count: int) -> float:
        self.counts.append(count)
        once = self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]
        self.clock.spend(once * count)
        return once * count


def test_every_ceiling_of_the_contract_is_measured_in_its_unit():
    units = {gauge.id: gauge.unit for gauge in catalogue.GAUGES}
    assert units == {name: unit for unit, names in CONTRACT.items() for name in names.split()}


def test_every_gauge_has_its_function():
    from importlib import import_module

    for gauge in catalogue.GAUGES:
        assert callable(import_module(f"fathom.gauges.{gauge.group}").GAUGES[gauge.id])
        assert gauge.group in catalogue.SCOPES


def test_the_quick_set_is_planned_for_less_than_its_promise():
    assert set(QUICK) < set(FULL)
    assert sum(catalogue.BY_ID[name].seconds for name in QUICK) < 80


def test_steady_work_ends_early():
    clock = FakeClock()
    taken = sample(Work(clock, 0.001), Effort(budget_s=10, warm_s=0.01, sample_s=0.005), clock)
    assert taken.seconds == (0.001,) * LEAST
    assert taken.repetitions == 5


def test_a_sample_repeats_short_work_often_enough():
    clock = FakeClock()
    work = Work(clock, 1e-6)
    taken = sample(work, Effort(budget_s=1, warm_s=0.02, sample_s=0.005), clock)
    assert taken.repetitions == 5000
    assert max(work.counts) == 5000


def test_the_warm_up_does_not_count():
    clock = FakeClock()
    taken = sample(Work(clock, 5.0, 0.3, 0.001), Effort(budget_s=60, warm_s=5.1, sample_s=0.001), clock)
    assert set(taken.seconds) == {0.001}


def test_unsteady_work_is_sampled_until_its_budget_is_spent():
    clock = FakeClock()
    work = Work(clock, *[0.010, 0.020] * 500)
    taken = sample(work, Effort(budget_s=1.0, warm_s=0, sample_s=0.001), clock)
    assert len(taken.seconds) == pytest.approx(1.0 / 0.015, abs=2)
    assert taken.flags


def test_work_slower_than_its_budget_is_still_sampled_thrice():
    clock = FakeClock()
    taken = sample(Work(clock, 100.0), Effort(budget_s=0.1), clock)
    assert taken.seconds == (100.0,) * ENOUGH_WHEN_SLOW


def test_there_is_an_end_to_sampling():
    clock = FakeClock()
    taken = sample(Work(clock, *[1e-6, 2e-6] * 5000), Effort(budget_s=1e9, warm_s=0, sample_s=1e-6), clock)
    assert len(taken.seconds) == MOST


def test_rests_lie_between_the_samples_alone():
    clock = FakeClock()
    taken = sample(Work(clock, 0.004), Effort(budget_s=9, warm_s=0, sample_s=0.004, rest_s=0.02), clock)
    assert clock.slept == pytest.approx(0.02 * (len(taken.seconds) - 1))


@given(st.lists(st.floats(1e-6, 1e3), min_size=3, max_size=50))
def test_quartiles_enclose_the_median(seconds):
    taken = Sample(tuple(seconds), 1)
    low, high = taken.quartiles
    assert low <= taken.median <= high
    assert uncertainty(seconds) >= 0


def test_uncertainty_falls_with_the_square_root_of_the_number():
    few, many = [1.0, 1.1, 1.2, 1.3] * 4, [1.0, 1.1, 1.2, 1.3] * 64
    assert uncertainty(few) / uncertainty(many) == pytest.approx(4, rel=0.2)


def test_the_fastest_measurement_is_the_ceiling_and_all_are_its_series():
    slow = Measurement({"bytes": 1}, Sample((2.0, 2.0, 2.0), 1), 8.0)
    fast = Measurement({"bytes": 2}, Sample((1.0, 2.0, 4.0), 1), 16.0, {"power_w": 1.0}, ("hot",))
    result = best("hbm.read", [slow, fast])
    assert (result.value, result.low, result.high) == (8.0, 16 / 3, 16 / 1.5)
    assert result.at == {"bytes": 2}
    assert result.series == [{"bytes": 1, "value": 4.0}, {"bytes": 2, "value": 8.0}]
    assert result.flags[0] == "hot" and "apart" in result.flags[1]
    assert result.conditions == {"power_w": 1.0}


def test_the_best_latency_is_the_shortest():
    results = [Measurement({"n": n}, Sample((n * 1e-6,) * 3, 1)) for n in (3, 2, 5)]
    result = best("latency.item", results)
    assert (result.value, result.unit, result.at) == (2e-6, "s", {"n": 2})
    assert result.low <= result.value <= result.high


def test_without_a_measurement_there_is_no_ceiling():
    with pytest.raises(NotHereError):
        best("hbm.read", [])


@given(st.floats(1e-7, 1e-5), st.floats(0, 1e-4), st.integers(3, 9))
def test_the_slope_finds_what_a_node_adds(node, constant, count):
    seconds = [tuple(constant + node * n for _ in range(count)) for n in latency.NODES]
    result = latency.slopes(latency.NODES, seconds)
    assert len(result) == count
    assert result == pytest.approx([node] * count, rel=1e-6)


@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 1, 1), (2, 7, 3)])
def test_flops_of_a_product_are_its_multiplies_and_adds(shape):
    rows, columns, length = shape
    counted = sum(2 for _ in range(rows) for _ in range(columns) for _ in range(length))
    assert matmul.flops(shape) == counted


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_attention_is_counted_as_the_ledger_counts_it(way):
    sizes = ledger_attention._Sizes(2, gauged_attention.HEADS, 64, 64, 128, 128)
    pairs = 2 * gauged_attention.HEADS * ledger_attention._pairs(sizes, "top-left")
    products = {"forward": 2, "backward": 4}[way]
    assert gauged_attention.flops(way, 2, 64) == products * pairs * (128 + 128)


def test_a_causal_mask_leaves_half_of_the_square():
    length = 512
    pairs = sum(1 for q in range(length) for k in range(length) if k <= q)
    exact = 2 * 2 * pairs * gauged_attention.DEPTH * gauged_attention.HEADS
    assert gauged_attention.flops("forward", 1, length) == pytest.approx(exact, rel=2 / length)


@pytest.mark.parametrize(("blocks", "tiles"), [(1, 5), (3, 8), (8, 8), (4, 1)])
def test_strided_tiles_touch_every_word_once(blocks, tiles):
    """The index arithmetic of kernels/memory.cu, thread by thread."""
    threads, unroll = 4, 2
    tile, words = threads * unroll, tiles * threads * unroll
    touched = [
        start + i * threads + thread
        for block in range(blocks)
        for thread in range(threads)
        for start in range(block * tile, words, blocks * tile)
        for i in range(unroll)
    ]
    assert sorted(touched) == list(range(words))


def test_triads_halves_touch_every_word_once():
    threads, half = 4, 2
    touched = [
        part * half * threads + thread + i * threads
        for thread in range(threads)
        for part in range(2)
        for i in range(half)
    ]
    assert sorted(touched) == list(range(2 * half * threads))


@pytest.mark.parametrize(("kind", "streams"), [("read", 1), ("write", 1), ("copy", 2), ("triad", 3)])
def test_bytes_are_counted_as_stream_does(kind, streams):
    assert memory.moved(kind, 1000) == streams * 1000


@given(st.integers(2**20, 2**40), st.integers(2**20, 2**28))
def test_arrays_fit_the_memory_and_not_the_cache(room, l2):
    chosen = memory.sizes(memory.SIZES, room, l2)
    assert chosen and all(size <= room and size % memory.TILE == 0 for size in chosen)
    assert len(chosen) == 1 or all(size >= memory.CACHES * l2 for size in chosen)


def test_cache_kernels_read_the_counted_bytes():
    blocks, count = 3, 4
    unroll, word = 8, 16
    counted = sum(word * unroll * 512 for _ in range(blocks) for _ in range(count))
    assert read_bytes(blocks, count) == counted
    assert read_bytes(blocks, passes(blocks)) >= 2**33
    assert unroll * 512 * word == CACHE_TILE


@given(st.integers(2, 4000), st.integers(1, 4096))
def test_the_walk_through_the_cache_stays_inside_and_visits_all_of_it(tiles, grid):
    """The tile arithmetic of kernels/caches.cu."""
    step = grid % (tiles - 1) + 1
    tile, seen = 0, set()
    for _ in range(tiles):
        assert 0 <= tile < tiles
        seen.add(tile)
        tile += step
        if tile >= tiles:
            tile -= tiles
    assert len(seen) == tiles // math.gcd(step, tiles)


@pytest.mark.parametrize(("kind", "each"), [("fp32", 2), ("fp64", 2), ("special", 1)])
def test_vector_work_is_every_threads_steps(kind, each):
    counted = sum(each * vector.CHAINS * vector.STEPS for _ in range(3 * vector.THREADS) for _ in range(2))
    assert vector.work_of(kind, 3, 2) == counted


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_bus_bandwidth_matches_the_load_of_a_link(ranks):
    """Pieces of size / n that a ring moves over each link: 2 (n - 1) for all-reduce, n - 1 for its halves."""
    piece = 1 / ranks
    assert collectives.bus_factor("all_reduce", ranks) == pytest.approx(2 * (ranks - 1) * piece)
    for kind in ("all_gather", "reduce_scatter", "all_to_all"):
        assert collectives.bus_factor(kind, ranks) == pytest.approx((ranks - 1) * piece)
    assert collectives.bus_factor("send_recv", ranks) == 1


def test_last_level_caches_are_summed_over_sockets():
    caches = [
        {"name": "L1d", "size_bytes": 32 << 10, "shared_by": 2},
        {"name": "L2", "size_bytes": 1 << 20, "shared_by": 2},
        {"name": "L3", "size_bytes": 32 << 20, "shared_by": 16},
    ]
    assert host.last_level_bytes({"caches": caches, "logical_cores": 128}) == 8 * (32 << 20)
    assert host.last_level_bytes({"caches": [], "logical_cores": 4}) == 0
    unknown = [{"name": "L3", "size_bytes": None, "shared_by": None}]
    assert host.last_level_bytes({"caches": unknown, "logical_cores": None}) == 0


def test_arrays_of_the_host_are_four_caches_and_little_memory():
    assert host.array_bytes(64 << 20, 1 << 40) == 256 << 20
    assert host.array_bytes(64 << 20, 1 << 28) == 1 << 25
    assert host.array_bytes(0, None) == host.SMALLEST


@given(st.sampled_from(["sequential", "random"]), st.integers(1, 64), st.integers(0, 10**6))
def test_blocks_lie_aligned_inside_the_file(kind, count, start):
    size, block = 64 * MIB, 128 * 1024
    places = offsets(kind, size, block, count, start)
    assert len(places) == count
    assert all(place % block == 0 and 0 <= place <= size - block for place in places)


def test_sequential_blocks_follow_each_other_and_wrap():
    assert offsets("sequential", 4 * MIB, MIB, 6, 3) == [b * MIB for b in (3, 0, 1, 2, 3, 0)]


def test_the_file_leaves_space_to_others():
    assert file_bytes(100 * 2**30, 4 * 2**30) == 4 * 2**30
    assert file_bytes(2**30 * 10, 4 * 2**30) == 2**30
    assert file_bytes(None, 8 * MIB) == 64 * MIB
    with pytest.raises(NotHereError, match="too little free space"):
        file_bytes(100 * MIB, 4 * 2**30)
