"""Weights that are dequantised for each product, decodes without a graph, and decodes over too many GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fathom.diagnosis import examine
from fathom.diagnosis.rules import NotAnalysed, rules
from fathom.diagnosis.signals import Captured, Signals
from faults.timelines.simulator import Job, Rank
from tests.support.examined import of_trace, on_traces
from tests.support.findings_fakes import account, collective, communication, compute, idle, raised, signals
from tests.support.findings_read import read
from tests.support.paths import TRACES

GEMM, CAST, SCALE = "nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "direct_copy_kernel_cuda", "MulFunctor<BFloat16>"
BF16, INT8 = "c10::BFloat16", "signed char"
Kernel = tuple[str, float, str, list, list]


def product(tokens: int, rows: int, depth: int) -> Kernel:
    return (GEMM, 50.0, "aten::mm", [[tokens, depth], [depth, rows]], [BF16, BF16])


def cast(*shape: int, dtype: str = INT8) -> Kernel:
    return (CAST, 80.0, "aten::copy_", [list(shape), list(shape), []], [BF16, dtype, ""])


def scale(*shape: int) -> Kernel:
    return (SCALE, 60.0, "aten::mul", [list(shape), [shape[0], 1]], [BF16, BF16])


def decodes(*kernels: Kernel, times: int = 4) -> Job:
    def step(job: Job) -> None:
        rank: Rank = job.ranks[0]
        for name, us, op, shapes, dtypes in kernels * times:
            rank.launch(name, us, op, shapes=json.dumps(shapes), dtypes=json.dumps(dtypes))
        rank.synchronise()

    return Job(count=1, kind="decode").run(step)


def signals_of(job: Job, folder: Path) -> Signals:
    return read(job.write(folder / "decode.fathom").path)


def test_conversion_and_scaling_before_a_product_are_dequantisation(tmp_path):
    """4 layers, each with 80 and 60 µs before a product of 50 µs."""
    given = signals_of(decodes(cast(4096, 1024), scale(4096, 1024), product(8, 4096, 1024)), tmp_path)
    seen = given["kernels.dequantised"]
    assert (seen.ms, seen.products_ms, seen.count) == pytest.approx((0.56, 0.2, 4.0))
    assert {work.family for work in seen.works} == {CAST, SCALE}


def test_the_gain_is_all_but_the_products(tmp_path):
    quantised = decodes(cast(4096, 1024), scale(4096, 1024), product(8, 4096, 1024), times=20)
    plain = decodes(product(8, 4096, 1024), times=20)
    result = examine(quantised.write(tmp_path / "q.fathom"))
    (finding,) = [f for f in result.findings if f.id == "kernels-dequantised-weights"]
    assert finding.gain_ms == pytest.approx(quantised.step_ms - plain.step_ms, rel=0.05)
    assert finding == result.findings[0]
    result = examine(plain.write(tmp_path / "p.fathom"))
    assert "kernels-dequantised-weights" not in [finding.id for finding in result.findings]


@pytest.mark.parametrize("name", ["kDequantizeBlockwise<__nv_bfloat16>", "dequantize_weights"])
def test_kernels_of_libraries_are_known_by_their_names(name, tmp_path):
    """Packed weights have another shape than the matrix that the product reads."""
    packed = (name, 80.0, "library::dequantize", [[4096 * 1024 // 2, 1]], ["unsigned char"])
    assert signals_of(decodes(packed, product(8, 4096, 1024)), tmp_path)["kernels.dequantised"].ms > 0


@pytest.mark.parametrize(
    "kernels",
    [
        [product(8, 4096, 1024)],
        [cast(512, 1024, dtype="unsigned char"), product(512, 4096, 1024)],  # pixels, the product's input
        [cast(4096, 1024, dtype="float"), product(8, 4096, 1024)],
        [cast(64, 64), product(8, 64, 64)],  # too small to matter
        [cast(4096, 1024), ("relu", 5.0, "aten::relu", [[8, 4096]], [BF16]), product(8, 4096, 1024)],
        [("dequant_gemv_kernel", 40.0, "library::gemv", [[1024, 8]], [BF16]), product(8, 4096, 1024)],
        [("int8_mm", 40.0, "aten::_weight_int8pack_mm", [[8, 1024], [4096, 1024]], [BF16, INT8])],
    ],
)
def test_other_conversions_are_no_dequantisation(kernels, tmp_path):
    seen = signals_of(decodes(*kernels), tmp_path)["kernels.dequantised"]
    assert (seen.works, seen.ms, seen.count) == ([], 0.0, 0.0)


# sizes without a graph

IDLE = [compute("a", 2.0), idle("dispatching", 5.0), idle("launch latency", 3.0)]
KINDS = ("host-graph-sizes", "host-launch-bound")


def test_decodes_without_a_graph_beside_some_with_one_are_a_size_that_is_missing():
    mixed = Captured(4, 4, 0.95, 14.0, 7.0, 8, 12)
    (finding,) = raised(signals(IDLE, host_captured=mixed, step_mean_ms=10.0), *KINDS).values()
    assert finding.kind == "host-graph-sizes" and finding.gain_ms == pytest.approx(7.0)
    assert [e.value for e in finding.evidence[-2:]] == [8.0, 12.0]
    assert sum(claim.ms for claim in finding.claims) == pytest.approx(7.0)


@pytest.mark.parametrize(
    "steps",
    [
        Captured(0, 8, 1.0, 0.0, 0.0, None, 4),  # no graphs at all
        Captured(8, 0, 0.0, 0.0, 0.0, 8, None),
        Captured(4, 4, 0.5, 1.0, 0.5, 8, 12),  # steps with graphs wait as long
    ],
)
def test_decodes_that_all_wait_are_bound_by_launches(steps):
    assert set(raised(signals(IDLE, host_captured=steps), *KINDS)) == {"host-launch-bound"}


def test_steps_that_are_no_decodes_are_not_compared(tmp_path):
    """A prefill beside graphs of decodes runs without one on purpose."""
    job = Job(count=1)

    def step(of: Job) -> None:
        of.samples = (of.samples or 0) + 1
        for rank in of.ranks:
            if of.samples % 2:
                rank.replay([4.0] * 50, GEMM)
            else:
                for _ in range(50):
                    rank.launch(GEMM, 4.0)

    assert signals_of(job.run(step), tmp_path).get("host.captured").value is None
    captured = Job(count=1, kind="decode").run(step).write(tmp_path / "captured.fathom")
    assert read(captured.path)["host.captured"].graphed == 4


# tensor parallelism

WIDE = "communication-wide-tensor-parallel"


def layers(
    compute_ms: float = 0.5, exposed_ms: float = 2.0, count: float = 32.0, ranks: int | None = 4, **known
) -> Signals:
    """A decode over four GPUs, each of which reads 1 GB of weights."""
    reductions = collective(exposed_ms, count=count, ranks=ranks, bytes=64e3)
    gemm = compute("gemm", compute_ms, bytes=1e9, at_ceiling_ms=known.pop("ceiling_ms", None))
    ledger = [gemm, communication(exposed_ms)]
    usual = {"step_kind": "decode", "device_memory_bytes": 80e9, **known}
    return signals(ledger, communication_account=account(compute_ms, reductions), **usual)


def test_all_reduces_that_take_longer_than_the_other_ranks_parts_by_hand():
    """Three more parts take 1.5 ms at most. At 0.16 ms each at the ceiling, they take 3 · 0.16 / 0.8 ms."""
    candidate = raised(layers(ceiling_ms=0.5), WIDE)[WIDE]
    assert candidate.gain_ms == pytest.approx(0.5)
    assert sum(claim.ms for claim in candidate.claims) == pytest.approx(0.5)
    assert raised(layers(ceiling_ms=0.16), WIDE)[WIDE].gain_ms == pytest.approx(2.0 - 0.6)


def test_kernels_in_a_graph_are_of_all_ranks():
    """They do not say which ranks take part."""
    assert raised(layers(ranks=None, step_world=4), WIDE)[WIDE] == raised(layers(), WIDE)[WIDE]
    assert raised(layers(ranks=None), WIDE) == {} and raised(layers(ranks=1), WIDE) == {}


@pytest.mark.parametrize(
    "fine",
    [
        layers(compute_ms=1.0, ceiling_ms=0.9),
        layers(count=2.0),  # sums for a log
        layers(step_kind="prefill"),
        layers(step_kind="train"),
        layers(device_memory_bytes=5e9),  # 4 GB of weights leave a single GPU no room for a cache
    ],
)
def test_tensor_parallelism_that_is_needed_or_fast_raises_nothing(fine):
    assert raised(fine, WIDE) == {}


def test_weights_of_unknown_size_may_not_fit():
    given = layers()
    bare = [compute("gemm", 0.5), communication(2.0)]
    known = {"step_kind": "decode", "device_memory_bytes": 80e9}
    unknown = signals(bare, communication_account=given["communication.account"], **known)
    (outcome,) = (made for rule in rules() if WIDE in rule.kinds for made in rule.look(unknown))
    assert isinstance(outcome, NotAnalysed) and "may not fit" in outcome.why


# real traces


@pytest.mark.skipif(not TRACES.is_dir(), reason="the shared traces are not here")
@pytest.mark.parametrize(
    "name", on_traces(["vllm-piecewise-graph", "h100-owlv2", "h100-qwen-0.5b", "b200-eager"])
)
def test_real_traces_without_these_causes_show_none(name):
    kinds = {"host-graph-sizes", "kernels-dequantised-weights", WIDE}
    assert not kinds & {finding.id for finding in of_trace(name).findings}
