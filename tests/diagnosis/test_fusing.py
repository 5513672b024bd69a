"""Kernels that a compiler fuses: their number, their bytes and their time."""

from __future__ import annotations

import gzip
import json
from itertools import count
from pathlib import Path

import polars as pl
import pytest

from fathom.diagnosis.signals.eager import INPUT, LAUNCH, compiled_share
from fathom.diagnosis.signals.fusing import MIXED, Part, Reach, fuse, moved, tensors_of

DATA = Path(__file__).parents[1] / "data" / "compiling.json.gz"
OWNERS = count()  # each kernel has another op
SHORTEST_NS = 2500.0


def kernel(op: str, needs: float | None, ns: float, part: str = "fused", window: int = 0, **more) -> Part:
    return Part(part, window, ns, op, op, **{"owner": next(OWNERS), "needs": needs} | more)


def reach(rate: float, **more) -> Reach:
    return Reach(rate, SHORTEST_NS, **more)


def test_a_chain_moves_what_its_kernels_share_once():
    """Three kernels that read and write 1 MB each: four of six passes stay in registers."""
    rows = [kernel("aten::mul", 2e6, 2000.0) for _ in range(3)]
    result = fuse(rows, reach(1e4))  # bytes a nanosecond: nothing is bound by its rate
    assert (result.before, result.after, result.chains) == (3, 1, 1)
    assert sum(result.saved.values()) == pytest.approx(6000 - 2500)  # the shortest kernel there is
    slow = fuse(rows, reach(1.0))
    assert sum(slow.saved.values()) == 0  # at that rate the fused kernel is no quicker


def test_products_and_steps_end_a_chain():
    chain = [kernel("aten::mul", 2e6, 5000.0), kernel("aten::add", 2e6, 5000.0)]
    product = kernel("aten::mm", 9e6, 9000.0, "kept")
    assert fuse([chain[0], product, chain[1]], reach(1e3)).chains == 0
    assert fuse([chain[0], chain[1]._replace(window=1)], reach(1e3)).chains == 0
    assert fuse([*chain, product, *chain], reach(1e3)).chains == 2


def test_one_kernel_alone_gains_nothing_but_a_norm_or_a_slow_sum_or_concatenation():
    alone = kernel("aten::gelu", 2e6, 50_000.0)
    norm = kernel("aten::native_layer_norm_backward", 2e6, 50_000.0)
    assert not sum(fuse([alone], reach(1e3)).saved.values())
    assert sum(fuse([norm], reach(1e3)).saved.values()) > 30_000
    for needs, gains in ((20e6, True), (40e6, False), (None, False)):  # at 1 TB/s: 20 µs, 40 µs, unknown
        for op in ("aten::sum", "aten::cat"):
            writes = (needs or 0.0) / 2 if op == "aten::cat" else 0.0
            reads = None if needs is None else [needs - writes]
            total = kernel(op, needs, 50_000.0, reads=reads, writes=writes)
            assert (sum(fuse([total], reach(1e3)).saved.values()) > 0) == gains


def test_sums_over_rows_end_a_kernel():
    rows = [kernel("aten::mul", 2e6, 9000.0), kernel("aten::sum", 2e6, 9000.0)]
    assert fuse(rows, reach(1e3)).after == 3
    few = [row._replace(numel=8 * 64, columns=64) for row in rows]
    assert fuse(few, reach(1e3)).after == 2


def test_one_kernel_adds_up_rows_instead_of_sorting_their_indices():
    """Two calls of index_put_, each of 3 MB: at 1 TB/s, a generated kernel takes 3 µs."""
    sorting = kernel("aten::remainder", 1e3, 4000.0, "scattered")
    owner = next(OWNERS)
    adding = [kernel("aten::_index_put_impl_", 1.5e6, 9000.0, "scattered", owner=owner) for _ in range(2)]
    other = kernel("aten::_index_put_impl_", 3e6, 18_000.0, "scattered")
    result = fuse([sorting, *adding, other], reach(1e3))
    assert (result.before, result.after) == (4, 2)
    assert sum(result.saved.values()) == pytest.approx(4000 + 2 * 18_000 - 2 * 3000)
    unknown = other._replace(needs=None, owner=next(OWNERS))
    assert fuse([sorting, unknown], reach(1e3)).saved == {}
    half = (4000 + 2 * 18_000) / 2  # the call of unknown bytes stays
    assert sum(fuse([sorting, other, unknown], reach(1e3)).saved.values()) == pytest.approx(half - 3000)
    rows = kernel("aten::index_add_", 3e6, 18_000.0, "scattered")
    assert sum(fuse([rows], reach(1e3)).saved.values()) == pytest.approx(18_000 - 3000)


def test_kernels_over_other_sizes_do_not_fuse() -> None:
    """A cast of weights lies between two kernels over activations, which fuse around it."""
    rows = [kernel("aten::mul", 2e6, 9000.0, numel=numel) for numel in (1000, 50, 1000)]
    result = fuse(rows, reach(1e4))
    assert (result.before, result.after, result.chains) == (3, 2, 1)


def test_a_result_that_the_next_op_reads_stays_in_registers() -> None:
    """Of a chain over tensors of 1 MB, a kernel reads what no op before wrote, and writes the last result."""
    double = {"reads": [1e6], "writes": 1e6}
    chain = [kernel("aten::mul", 2e6, 9.0, **double) for _ in range(9)]
    assert moved(chain).total == 2e6
    widened = kernel("aten::copy_", 3e6, 9.0, reads=[1e6], writes=2e6)  # to a wider dtype
    assert moved([*chain, widened]).total == 3e6
    both = kernel("aten::mul", 3e6, 9.0, reads=[1e6, 1e6], writes=1e6)
    assert moved([*chain, both]).total == 3e6  # the second operand comes from elsewhere
    residual = kernel("aten::add", 3e6, 9.0, reads=[1e6, 1e6], writes=1e6)
    assert moved([*chain, residual, *chain]).total == 4e6  # a later block reads the sum, too
    filled = kernel("aten::fill_", 1e6, 9.0, reads=[], writes=1e6)
    assert moved([filled, *chain]).total == 1e6


def test_the_kernels_of_one_op_move_its_tensors_once() -> None:
    halves = [kernel("aten::x", 1e6, 9.0, reads=[1e6], writes=1e6, owner=7) for _ in range(2)]
    assert moved(halves).total == 2e6


def test_sums_and_long_norms_read_their_tensors_in_a_pass_before() -> None:
    double = {"reads": [1e6], "writes": 1e6}
    chain = [kernel("aten::mul", 2e6, 9.0, **double) for _ in range(3)]
    norm = kernel("aten::native_group_norm", 2e6, 9.0, **double)
    total = kernel("aten::sum", 1e6, 9.0, reads=[1e6])
    assert moved([*chain, norm]) == (2e6, 1e6)
    assert moved([*chain, total]) == (2e6, 1e6)


FLOAT2 = '["float", "float"]'


@pytest.mark.parametrize(
    ("op", "shapes", "dtypes", "needs", "expected"),
    [
        ("aten::gelu_backward", "[[8, 64], [8, 64]]", FLOAT2, 6144.0, ([2048.0, 2048.0], 2048.0)),
        ("aten::add", "[[8, 64], [64]]", FLOAT2, 4352.0, ([2048.0], 2304.0)),
        ("aten::copy_", "[[8, 64], [8, 64]]", '["c10::BFloat16", "float"]', 3072.0, ([2048.0], 1024.0)),
        ("aten::fill_", "[[8, 64]]", '["float"]', 2048.0, ([], 2048.0)),
        ("aten::cat", "[[[8, 32], [8, 32]]]", '["TensorList"]', 4096.0, ([2048.0], 2048.0)),
        ("mylib::op", "[[8, 64]]", '["float"]', None, ([2048.0], 2048.0)),
        ("mylib::op", None, None, None, ([], 0.0)),
    ],
)
def test_the_tensors_that_an_op_reads_and_writes(op, shapes, dtypes, needs, expected) -> None:
    assert tensors_of(op, shapes, dtypes, needs) == expected


@pytest.mark.parametrize(
    ("op", "rows", "columns", "kernels"),
    [
        ("aten::sum", 16384, 384, 2),  # sums of parts, and their sum
        ("aten::sum", 32, 384, 1),  # few rows
        ("aten::sum", 16384, 10_000, 1),  # enough columns for all multiprocessors
        ("aten::native_layer_norm_backward", 4096, 768, 4),  # the sums of two weights, in two steps
        ("aten::native_layer_norm_backward", MIXED // 384 + 1, 384, 3),  # the first step with the rows'
        ("aten::native_layer_norm_backward", 32, 384, 2),
        ("aten::native_layer_norm", 4096, 768, 1),
        ("aten::native_batch_norm", 16384, 1024, 3),
    ],
)
def test_sums_over_many_rows_take_two_steps(op, rows, columns, kernels) -> None:
    """As Inductor splits reductions on 132 multiprocessors (`Reduction.num_splits`, torch 2.10)."""
    call = [kernel(op, 1e6, 9000.0, numel=rows * columns, columns=columns, owner=7) for _ in range(2)]
    assert fuse(call, reach(1e9)).after == kernels


def test_generated_code_draws_random_numbers_slowly() -> None:
    """At 2 numbers per ns, a dropout over a million elements takes 500 µs, so its chain takes longer."""
    dropout = kernel("aten::native_dropout", 9e6, 3e5, numel=10**6, reads=[4e6], writes=5e6)
    chain = [kernel("aten::mul", 8e6, 1e5, numel=10**6, reads=[4e6], writes=4e6), dropout]
    assert sum(fuse(chain, reach(1e6, random=2.0)).saved.values()) == pytest.approx(4e5 - 5e5)
    assert sum(fuse(chain, reach(1e6)).saved.values()) == pytest.approx(4e5 - SHORTEST_NS)
    other = [kernel("aten::tanh", 8e6, 4e5, numel=7), kernel("aten::exp", 8e6, 4e5, numel=7)]
    fused = fuse([*chain, *other], reach(1e6, random=2.0))
    assert sum(fused.gains().values()) == pytest.approx(sum(fused.saved.values()))
    assert min(fused.gains().values()) > 0 and not fuse(chain, reach(1e6, random=2.0)).gains()


def test_a_norm_behind_a_change_of_the_layout_reads_with_strides() -> None:
    norm = kernel("aten::native_layer_norm", 8e6, 50_000.0, numel=9, reads=[4e6], writes=4e6)
    turned = kernel("aten::copy_", 8e6, 60_000.0, numel=9, reads=[4e6], writes=4e6)
    saved = sum(fuse([turned, norm], reach(1e3)).saved.values())
    assert saved == pytest.approx(110_000 - 8000 - (60_000 - 8000))
    cast = turned._replace(writes=2e6, needs=6e6)  # keeps the layout
    assert sum(fuse([cast, norm], reach(1e3)).saved.values()) > 90_000


TRACES = json.loads(gzip.decompress(DATA.read_bytes()))


@pytest.mark.parametrize("program", sorted(TRACES))
def test_kernels_and_time_saved_are_about_those_of_traced_compiled_steps(program) -> None:
    """Eight programs on H200s, eager and compiled (`python -m benchmarks.accuracy.compiling parts`)."""
    known = TRACES[program]
    fused = fuse([Part(**part) for part in known["parts"]], Reach(**known["reach"]))
    eager, compiled = known["busy_ms"]
    assert fused.after == pytest.approx(known["generated"], rel=0.2)
    assert sum(fused.saved.values()) / 1e6 == pytest.approx(eager - compiled, rel=0.3)


def test_a_batch_norm_needs_two_kernels_more_however_many_it_launches_now() -> None:
    op = "aten::native_batch_norm"
    rows = [kernel(op, 2e6, 9000.0, owner=7) for _ in range(2)]
    assert fuse(rows, reach(1e3)).after == 3


def test_a_cast_of_a_bias_disappears_in_the_kernel_that_sums_up_its_gradient() -> None:
    total = kernel("aten::sum", 2e6, 9000.0, numel=1000)
    cast = kernel("aten::copy_", 200.0, 1500.0, numel=50, vector=True)
    result = fuse([total, cast], reach(1e4))
    assert (result.before, result.after) == (2, fuse([total], reach(1e4)).after)
    assert result.saved["aten::copy_"] == 1500.0


def test_compiled_launches_count_against_ops_and_not_against_their_kernels() -> None:
    """Two batch norms of two kernels each, and a convolution of two, in each of two steps."""
    norm = "aten::native_batch_norm"
    rows = [
        kernel(op, 2e6, 9000.0, part, window, owner=owner)
        for window in (0, 1)
        for op, part, owner in [(norm, "fused", 7), ("aten::convolution", "kept", 8), (norm, "fused", 9)]
        for _ in range(2)
    ]
    fused = fuse(rows, reach(1e3))
    assert fused.before == 8 and fused.after == 12
    times = pl.DataFrame(rows, infer_schema_length=None).with_columns(host=pl.lit(None, pl.Float64))
    assert compiled_share(times, 12, 0) == pytest.approx((2 + LAUNCH * 12) / 6)
    kept = pl.when(part="kept").then(50.0).otherwise(10.0)  # each of the two kernels of an op
    longer = compiled_share(times.with_columns(host=kept), 12, 5)
    generated = (LAUNCH * 12 + INPUT * 5) * 20
    assert longer == pytest.approx((2 * 100 + generated) / (2 * 100 + 4 * 20))
    assert compiled_share(times.clear(), 12, 5) == 1.0
