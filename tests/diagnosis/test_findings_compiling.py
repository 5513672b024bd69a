"""`framework-not-compiled`: what fuses, what it saves, and where nothing is to be said."""

from __future__ import annotations

from itertools import count

import pytest

import fathom
from fathom.analysis.replay import Gain
from fathom.diagnosis.engine.claims import Sized, disjoint
from fathom.diagnosis.engine.findings import findings
from fathom.diagnosis.rules import Candidate, Claim, rules
from fathom.diagnosis.signals import Eager, Signal, Signals
from fathom.diagnosis.signals.eager import Part, _put_bytes, fuse, part_of
from tests.support.findings_fakes import compute, idle, signals, work
from tests.support.paths import EXAMPLES

OWNERS = count()  # each kernel has another op
KIND = "framework-not-compiled"
chosen = [rule for rule in rules() if KIND in rule.kinds]


def kernel(op: str, needs: float | None, ns: float, part: str = "fused", window: int = 0, **more) -> Part:
    return Part(part, window, ns, op, op, **{"owner": next(OWNERS), "needs": needs} | more)


@pytest.mark.parametrize(
    ("path", "family", "part"),
    [
        ("aten::gelu", "vectorized_elementwise_kernel<Gelu>", "fused"),
        ("aten::linear > aten::addmm", "nvjet_sm90_tst", "kept"),
        ("aten::_scaled_dot_product_flash_attention", "flash_fwd_kernel", "kept"),
        ("autograd::engine::evaluate_function: A > aten::native_layer_norm_backward", "GammaBeta", "fused"),
        ("Optimizer.step#AdamW.step > aten::_fused_adamw_", "multi_tensor_apply_kernel", "outside"),
        ("torch::autograd::AccumulateGrad > aten::add_", "vectorized_elementwise_kernel", "outside"),
        ("mylib::scan", "scan_kernel", "kept"),
        ("aten::embedding_backward > aten::embedding_dense_backward", "compute_grad_weight", "kept"),
        ("", "some_kernel", "outside"),
    ],
)
def test_what_the_compiler_makes_of_a_kernel(path, family, part):
    assert part_of(path, family) == part


def test_a_chain_moves_what_its_kernels_share_once():
    """Three kernels that read and write 1 MB each: four of six passes stay in registers."""
    rows = [kernel("aten::mul", 2e6, 2000.0) for _ in range(3)]
    result = fuse(rows, rate=1e4)  # bytes a nanosecond: nothing is bound by its rate
    assert (result.before, result.after, result.chains) == (3, 1, 1)
    assert sum(result.saved.values()) == pytest.approx(6000 - 2500)  # the shortest kernel there is
    slow = fuse(rows, rate=1.0)
    assert sum(slow.saved.values()) == 0  # at that rate the fused kernel is no quicker


def test_products_and_steps_end_a_chain():
    chain = [kernel("aten::mul", 2e6, 5000.0), kernel("aten::add", 2e6, 5000.0)]
    product = kernel("aten::mm", 9e6, 9000.0, "kept")
    assert fuse([chain[0], product, chain[1]], rate=1e3).chains == 0
    assert fuse([chain[0], chain[1]._replace(window=1)], rate=1e3).chains == 0
    assert fuse([*chain, product, *chain], rate=1e3).chains == 2


def test_one_kernel_alone_gains_nothing_but_a_norm_or_a_slow_sum():
    alone = kernel("aten::gelu", 2e6, 50_000.0)
    norm = kernel("aten::native_layer_norm_backward", 2e6, 50_000.0)
    assert not sum(fuse([alone], rate=1e3).saved.values())
    assert sum(fuse([norm], rate=1e3).saved.values()) > 40_000
    for needs, gains in ((20e6, True), (40e6, False), (None, False)):  # at 1 TB/s: 20 µs, 40 µs, unknown
        total = kernel("aten::sum", needs, 50_000.0)
        assert (sum(fuse([total], rate=1e3).saved.values()) > 0) == gains


def test_sums_over_rows_need_a_kernel_more():
    rows = [kernel("aten::mul", 2e6, 9000.0), kernel("aten::sum", 2e6, 9000.0)]
    assert fuse(rows, rate=1e3).after == 2


def test_one_kernel_adds_up_rows_instead_of_sorting_their_indices():
    """Two calls of index_put_, each of 3 MB: at 1 TB/s, a generated kernel takes 3 µs."""
    sorting = kernel("aten::remainder", 1e3, 4000.0, "scattered")
    owner = next(OWNERS)
    adding = [kernel("aten::_index_put_impl_", 1.5e6, 9000.0, "scattered", owner=owner) for _ in range(2)]
    other = kernel("aten::_index_put_impl_", 3e6, 18_000.0, "scattered")
    result = fuse([sorting, *adding, other], rate=1e3)
    assert (result.before, result.after) == (4, 2)
    assert sum(result.saved.values()) == pytest.approx(4000 + 2 * 18_000 - 2 * 3000)
    assert fuse([sorting, other._replace(needs=None)], rate=1e3).saved == {}


@pytest.mark.parametrize(
    ("shapes", "dtypes", "expected"),
    [
        ("[[20000, 128], [], [200000, 128], [], []]", '["float", "", "float", "Scalar", "Scalar"]', 122.88e6),
        ("[[8192, 64], [], [4086, 64], [], []]", '["c10::BFloat16", "", "c10::BFloat16"]', 6 * 4086 * 64),
        ("[[8192, 64]]", '["float"]', None),
        (None, None, None),
    ],
)
def test_the_bytes_of_adding_rows_to_their_places(shapes, dtypes, expected):
    assert _put_bytes(shapes, dtypes) == expected


def test_kernels_over_other_sizes_do_not_fuse() -> None:
    """A cast of weights lies between two kernels over activations, which fuse around it."""
    rows = [kernel("aten::mul", 2e6, 9000.0, numel=numel) for numel in (1000, 50, 1000)]
    result = fuse(rows, rate=1e4)
    assert (result.before, result.after, result.chains) == (3, 2, 1)


def test_a_batch_norm_needs_two_kernels_more_however_many_it_launches_now() -> None:
    op = "aten::native_batch_norm"
    rows = [kernel(op, 2e6, 9000.0, owner=7) for _ in range(2)]
    assert fuse(rows, rate=1e3).after == 3
    sums = [kernel("aten::sum", 2e6, 9000.0) for _ in range(2)]
    assert fuse(sums, rate=1e3).after == 3


EAGER = Eager({"mul": 2.0, "add": 1.0}, 4.0, 40.0, 10.0, 8.0, ("aten::mul", "aten::add"), 0.6)
LEDGER = [compute("mul", 4.0), compute("add", 2.0), idle("dispatching", 0.5)]
WORKS = [work("mul", 4.0, "aten::mul"), work("add", 2.0, "aten::add")]


def given(gain: Gain | None = None, **more) -> Signals:
    replay = {} if gain is None else {"step.replay": type("R", (), {"gain": staticmethod(lambda _: gain)})()}
    record = {"framework.eager": EAGER, "kernels.work": WORKS, "step.mean_ms": 10.0, "host.launches": 100}
    return signals(LEDGER, **(record | replay | more))


def test_an_eager_program_is_told_to_compile():
    (finding,) = [item for item in findings(given(), chosen)[0] if item.id == KIND]
    # saved by fusing in both families, and in launching by its factor
    assert finding.gain_ms == pytest.approx(2.0 + 1.0 + 0.4 * 0.5)
    assert "torch.compile" in finding.remedy and any("op by op" in line.text for line in finding.evidence)


def test_what_compiles_already_is_not():
    known = Signal(None, "", "parts of the program are compiled")
    result, abstained = findings(given(**{"framework.eager": known}), chosen)
    assert not result and [absence.why for absence in abstained] == [known.why]


def test_a_gain_that_may_be_small_is_no_reason_to_compile():
    assert not findings(given(Gain(0.6, 0.3, 2.0)), chosen)[0]


def test_it_claims_what_specific_causes_leave_and_before_launching():
    ledger = {("compute", "mul"): 4.0, ("idle: dispatching", ""): 4.0}
    specific = Sized(Candidate("kernels-unfused-norm", [Claim("compute", "mul", 3.0)], []), 3.0)
    launches = Sized(
        Candidate("host-launch-bound", [], [], changes=("x",), spill=("idle: dispatching",)), 4.0, 3.0, 4.0
    )
    general = Sized(
        Candidate(
            KIND,
            [Claim("compute", "mul", 3.0)],
            [],
            changes=("y",),
            spill=("idle: dispatching",),
            general=True,
        ),
        5.0,
        4.0,
        6.0,
    )
    kept = {item.candidate.kind: item for item in disjoint([launches, general, specific], ledger, 0.1)}
    assert kept["kernels-unfused-norm"].ms == 3.0
    assert kept[KIND].ms == pytest.approx(3.0)  # 1 of its 3 ms of rows, and 2 of dispatching
    assert kept["host-launch-bound"].ms == pytest.approx(2.0)
    for row, values in ledger.items():
        claims = (c for item in kept.values() for c in item.candidate.claims if (c.entry, c.detail) == row)
        assert sum(claim.ms for claim in claims) <= values + 1e-9


def test_the_example_in_eager_mode_is_told_first():
    result = fathom.open(EXAMPLES / "train_gpt-h200.fathom.zip").findings
    assert result[0].id == KIND and result[0].gain_ms > 1.0
    assert result[0].low_ms < result[0].gain_ms < result[0].high_ms
