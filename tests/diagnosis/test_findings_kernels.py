"""Rules of kernels and numbers on signals that must raise them, and on those that must not."""

from __future__ import annotations

import pytest

from fathom.diagnosis.engine.leads import LEAST
from fathom.diagnosis.rules.candidates import MOST_FAMILIES
from fathom.diagnosis.rules.kernels import atomics, cache, measures, sampled
from fathom.diagnosis.rules.kernels.attention import grows, layout_of, needed_ms
from fathom.diagnosis.signals import Chain, Family, UnknownSignalError
from fathom.diagnosis.signals.kernels import SMALL
from fathom.diagnosis.verdict import pieces
from tests.support.findings_fakes import H200, compute, product, raised, signals, work

SDPA = "aten::_scaled_dot_product_"
STEP = "Optimizer.step#AdamW.step"
PATTERNS = {
    "kernels-gradient-memset": work("fill", 2.0, "Optimizer.zero_grad#SGD.zero_grad", "aten::_foreach_zero_"),
    "kernels-unfused-optimizer": work("multi", 2.0, STEP, "aten::_foreach_mul_"),
    "kernels-for-loop-optimizer": work("mul", 2.0, STEP, "aten::mul_", count=100.0),
    "kernels-not-channels-last": work("nchwToNhwcKernel<half>", 2.0, "aten::cudnn_convolution"),
    "kernels-transposes": work(
        "elementwise_kernel<direct_copy_kernel_cuda<float>>",
        2.0,
        "aten::contiguous",
        "aten::clone",
        "aten::copy_",
        dtypes='["float", "float"]',
    ),
}


@pytest.mark.parametrize("kind", PATTERNS)
def test_work_tells_its_cause_by_ops_and_names(kind):
    findings = raised(signals([], kernels_work=[PATTERNS[kind]]), kind)
    assert set(findings) == {kind}
    assert sum(claim.ms for claim in findings[kind].claims) <= 2.0


@pytest.mark.parametrize(
    "fine",
    [
        work("multi", 2.0, STEP, "aten::_fused_adamw_"),
        work("mul", 2.0, STEP, "aten::mul_", count=3.0),
        work("mul", 2.0, "Optimizer.step#SparseAdam.step", "aten::mul_", count=100.0),  # has no foreach
        work("flash_fwd", 2.0, "aten::scaled_dot_product_attention", "aten::_flash_attention_forward"),
        work("nvjet_sm90_tst", 2.0, "aten::mm"),
        work(
            "elementwise_kernel<direct_copy_kernel_cuda<float>>",
            2.0,
            "aten::contiguous",
            "aten::copy_",
            dtypes='["float", "c10::BFloat16"]',
        ),
        work("", 2.0),
    ],
)
def test_fused_and_fitting_work_raises_nothing(fine):
    assert raised(signals([], kernels_work=[fine]), *PATTERNS) == {}


ACCUMULATE = ("autograd::engine::evaluate_function", "torch::autograd::AccumulateGrad", "aten::add_")


@pytest.mark.parametrize(
    ("added_ms", "expected"),
    [(2.5, 3.5), (20.0, 4.0), (0.0, 1.0)],  # to zeros; in eight micro-batches, of which one; to nothing
)
def test_zeroed_gradients_cost_what_is_added_to_the_zeros_as_well(added_ms, expected):
    zeroing = work("fill", 1.0, "Optimizer.zero_grad#SGD.zero_grad", "aten::_foreach_zero_")
    adding = [work("add", added_ms, *ACCUMULATE)] if added_ms else []
    findings = raised(signals([], kernels_work=[zeroing, *adding]), "kernels-gradient-memset")
    assert sum(claim.ms for claim in findings["kernels-gradient-memset"].claims) == pytest.approx(expected)
    assert raised(signals([], kernels_work=adding), "kernels-gradient-memset") == {}


ENGINE = "autograd::engine::evaluate_function: ViewBackward0"


@pytest.mark.parametrize(
    ("callers", "moves"),
    [
        ((), True),
        (("aten::flatten",), True),
        (("my region",), True),  # of record_function
        (("aten::matmul",), False),  # its own operands
        (("aten::linear", "aten::matmul"), False),
        ((ENGINE, "ViewBackward0"), False),
        ((ENGINE, "MyRotationBackward"), False),
    ],
)
def test_a_reshape_that_copies_is_the_programs_own_or_that_of_an_op(callers, moves):
    ops = (*callers, "aten::reshape", "aten::clone", "aten::copy_")
    types = '["c10::BFloat16", "c10::BFloat16"]'
    item = work("elementwise_kernel<direct_copy_kernel_cuda<bfloat16>>", 2.0, *ops, dtypes=types)
    assert ("kernels-transposes" in raised(signals([], kernels_work=[item]), *PATTERNS)) == moves


def test_float32_products_are_told_by_what_computes_them():
    plain = product("ampere_sgemm_128x64_nn", 10.0, 4096, 4096, 4096, "fp32")
    tensor = product("cutlass_80_tensorop_s1688gemm", 1.0, 4096, 4096, 4096, "fp32")
    for item, kind in ((plain, "kernels-tf32-off"), (tensor, "kernels-no-mixed-precision")):
        given = signals([], numbers_products=[item], kernels_work=[item.work], kernels_ceilings=H200)
        assert set(raised(given, kind)) == {kind}


def convolving(*families: str) -> list:
    return [work(family, 5.0, "aten::conv2d", "aten::cudnn_convolution") for family in families]


ORDINARY = ("volta_sgemm_64x64_nt", "cudnn_infer_volta_scudnn_128x64_relu_nn", "wgrad_alg0_engine<float>")


@pytest.mark.parametrize(
    ("families", "tf32", "kind"),
    [
        (ORDINARY, False, "kernels-no-mixed-precision"),  # Volta has no TF32 to switch on
        (ORDINARY, True, "kernels-tf32-off"),
        (("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32",), True, None),
        (("volta_fp16_s884gemm_fp16_128x128",), False, None),
        ((ORDINARY[0], *["cutlass_80_tensorop_s1688gemm"] * 3), True, None),  # the program uses TF32
        (("elementwise_kernel<float>",), False, None),
    ],
)
def test_kernels_without_shapes_tell_by_their_names_that_they_have_no_tensor_cores(families, tf32, kind):
    works = convolving(*families)
    given = signals([], numbers_products=[], kernels_work=works, device_tf32=tf32)
    findings = raised(given, "kernels-tf32-off", "kernels-no-mixed-precision")
    assert set(findings) == ({kind} if kind else set())
    if kind:
        assert (
            findings[kind].evidence[0].value == 15.0
            and "without tensor cores" in findings[kind].evidence[0].text
        )


def convolution(name: str, ms: float, dtype: str):
    given = {"shapes": "[[64, 128, 80, 80], [128, 128, 3, 3]]", "dtypes": f'["{dtype}", "{dtype}"]'}
    return work(name, ms, "aten::conv2d", "aten::cudnn_convolution", **given)


def test_float32_convolutions_on_tensor_cores_could_be_narrower():
    wide = convolution("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32", 8.0, "float")
    half = convolution("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32", 5.0, "c10::BFloat16")
    relu = work("vectorized_elementwise_kernel<clamp<float>>", 2.0, "aten::relu")
    for works, expected in (
        ([wide, relu], {"kernels-no-mixed-precision"}),
        ([wide, half, half, relu], set()),  # chosen for a part
        ([half, relu], set()),
    ):
        given = signals([], numbers_products=[], kernels_work=works, kernels_ceilings=H200)
        findings = raised(given, "kernels-no-mixed-precision")
        assert set(findings) == expected
        if findings:
            left = 360 / 780
            saved = sum(claim.ms for claim in findings["kernels-no-mixed-precision"].claims)
            assert saved == pytest.approx(8.0 * (1 - left) + 2.0 * 0.45)


RELU, NORM = "vectorized_elementwise_kernel<clamp<float>>", "bn_fw_kernel<float>"


@pytest.mark.parametrize(
    ("moved", "memory", "norm"),
    [
        (0.6e9, 4e12, 0.15),  # 0.6 GB at 4 TB/s: 0.15 of its millisecond
        (0.0, 4e12, 1.0),  # unknown
        (0.6e9, None, 1.0),
        (9e9, 4e12, 1.0),  # no more than all of it, from a cache
    ],
)
def test_half_the_bytes_save_only_the_time_that_moving_them_takes(moved, memory, norm):
    wide = convolution("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32", 8.0, "float")
    works = [wide, work(RELU, 2.0, "aten::relu"), work(NORM, 0.6, "aten::batch_norm")]
    works.append(work(NORM, 0.4, "aten::other_norm"))  # a family's row has both
    ledger = [compute(RELU, 2.0, bytes=8e9), compute(NORM, 1.0, bytes=moved or None)]
    ceilings = H200 | ({"memory": memory} if memory else {})
    given = signals(ledger, numbers_products=[], kernels_work=works, kernels_ceilings=ceilings)
    claims = raised(given, "kernels-no-mixed-precision")["kernels-no-mixed-precision"].claims
    saved = {claim.detail: claim.ms for claim in claims}
    assert saved[RELU] == pytest.approx(2.0 * 0.45)
    assert saved[NORM] == pytest.approx(1.0 * 0.45 * norm)


def test_hidden_parts_of_a_family_move_bytes_too():
    """Half of its 2 ms is hidden behind other work, so its bytes need half of its time, not all."""
    wide = convolution("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32", 8.0, "float")
    ledger = [compute(NORM, 1.0, bytes=4e9, own_ms=2.0)]
    works = [wide, work(NORM, 1.0, "aten::batch_norm")]
    ceilings = H200 | {"memory": 4e12}
    given = signals(ledger, numbers_products=[], kernels_work=works, kernels_ceilings=ceilings)
    claims = raised(given, "kernels-no-mixed-precision")["kernels-no-mixed-precision"].claims
    assert {claim.detail: claim.ms for claim in claims}[NORM] == pytest.approx(0.45 / 2)


def test_of_many_families_of_activations_the_largest_count():
    wide = convolution("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32", 50.0, "float")
    works = [work(f"kernel_{number}<float>", 0.01 * number, "aten::op") for number in range(1, 100)]
    given = signals([], numbers_products=[], kernels_work=[wide, *works], kernels_ceilings=H200)
    mixed = raised(given, "kernels-no-mixed-precision")["kernels-no-mixed-precision"]
    assert len(mixed.changes) == 1 + MOST_FAMILIES and any("kernel_99<" in text for text in mixed.changes)


def test_neither_names_nor_shapes_are_no_judgement_of_precision():
    with pytest.raises(UnknownSignalError):
        raised(signals([], kernels_work=[work("relu", 5.0)]), "kernels-tf32-off")


def test_bfloat16_small_and_minor_float32_products_are_left_alone():
    half, small = product("nvjet_tst", 9.0, 4096, 4096, 4096), product("ampere_sgemm", 1.0, 32, 8, 8, "fp32")
    minor = product("tf32_gemm", 1.0, 512, 512, 512, "fp32")
    works = [half.work, small.work, minor.work]
    given = signals([], numbers_products=[half, small, minor], kernels_work=works, kernels_ceilings=H200)
    assert raised(given, "kernels-tf32-off") == {}


def test_odd_sizes_of_layers_are_told_from_odd_numbers_of_rows():
    vocabulary = product("gemm", 9.0, 4096, 50257, 768)
    layer = product("gemm", 9.0, 4096, 1001, 768)
    rows = product("gemm", 9.0, 4097, 1024, 768)
    for item, kind in ((vocabulary, "numbers-odd-vocabulary"), (layer, "numbers-odd-size"), (rows, None)):
        given = signals([], numbers_products=[item], kernels_work=[item.work], kernels_ceilings=H200)
        findings = raised(given, "numbers-odd-vocabulary")
        assert set(findings) == ({kind} if kind else set())
    given = signals([], numbers_products=[vocabulary], kernels_work=[vocabulary.work])
    assert 50304.0 in [
        line.value for line in raised(given, "numbers-odd-vocabulary")["numbers-odd-vocabulary"].evidence
    ]


def test_heads_that_have_to_be_padded():
    attention = ("aten::scaled_dot_product_attention", "aten::_flash_attention_forward")
    for head, expected in ((100, {"numbers-head-size"}), (64, set()), (96, set())):
        item = work("flash", 4.0, *attention, shapes=f"[[8, 16, 512, {head}], [8, 16, 512, {head}]]")
        assert set(raised(signals([], kernels_work=[item]), "numbers-head-size")) == expected


@pytest.mark.parametrize(
    ("head", "rates", "forward_ms", "gain_ms"),
    [
        (
            512,
            {"matmul.bf16": 800e12},
            0.91,
            40.0 - 0.264 - 0.661,
        ),  # as an H200 took, one head of 1,024 tokens
        (256, {"matmul.bf16": 800e12}, 0.91, None),
        (512, {}, 0.91, None),
        (512, {"matmul.bf16": 800e12}, -38.9, None),  # no slower than fused ones
    ],
)
def test_heads_that_no_fused_kernel_takes(head, rates, forward_ms, gain_ms):
    item = f"[64, 1024, 1, {head}]"
    types = '["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"]'
    general = [
        work(
            "fmhaF",
            forward_ms,
            "aten::_efficient_attention_forward",
            shapes=f"[{item}, {item}, {item}]",
            dtypes=types,
        ),
        work(
            "fmhaB",
            39.09,
            "ScaledDotProductEfficientAttentionBackward0",
            "aten::_efficient_attention_backward",
            shapes=f"[{item}, {item}, {item}, {item}]",
            dtypes=types,
        ),
    ]
    findings = raised(signals([], kernels_work=general, kernels_ceilings=rates), "numbers-head-size")
    assert set(findings) == ({"numbers-head-size"} if gain_ms else set())
    if gain_ms:
        assert sum(claim.ms for claim in findings["numbers-head-size"].claims) == pytest.approx(
            gain_ms, rel=0.01
        )


def test_few_rows_are_a_small_batch_when_training_and_decoding_otherwise():
    forward, wide = product("gemm", 5.0, 128, 4096, 4096), product("gemm", 5.0, 32768, 256, 256)
    back = product("gemm", 5.0, 128, 4096, 4096, op="autograd::engine::evaluate_function: MmBackward0")
    token, eight = product("gemv", 5.0, 1, 4096, 4096), product("gemm", 5.0, 8, 4096, 4096)
    ledger = [compute("gemm", 8.0)]
    for products, expected in (
        ([forward, back], {"kernels-batch-too-small"}),
        ([wide, back], set()),
        ([token], {"kernels-weight-bound-decode"}),
        ([eight], set()),  # decoded together
        ([forward], set()),
    ):
        given = signals(ledger, numbers_products=products, kernels_work=[p.work for p in products])
        assert set(raised(given, "kernels-batch-too-small")) == expected


def test_masks_are_found_where_each_op_has_them():
    q, mask = "[8, 16, 512, 64]", "[512, 512]"
    forward, backward = "aten::_efficient_attention_forward", "aten::_efficient_attention_backward"
    for op, shapes, masked in (
        (forward, f"[{q}, {q}, {q}, {mask}]", True),
        (forward, f"[{q}, {q}, {q}, []]", False),
        (backward, f"[{q}, {q}, {q}, {q}, {mask}]", True),
        (backward, f"[{q}, {q}, {q}, {q}, []]", False),
    ):
        findings = raised(
            signals([], kernels_work=[work("fmha", 2.0, op, shapes=shapes)]), "kernels-materialised-mask"
        )
        assert ("kernels-materialised-mask" in findings) == masked


# As PyTorch recorded them: what `scaled_dot_product_attention` is given, and the op within it that launched.
WITHIN = {
    "aten::_scaled_dot_product_flash_attention_backward": ("[4, 16, 4096, 104]", 4),
    "aten::_flash_attention_backward": ("[4, 4096, 16, 104]", 4),
    "aten::_scaled_dot_product_efficient_attention": ("[4, 16, 4096, 104]", 3),
    "aten::_efficient_attention_forward": ("[4, 4096, 16, 104]", 3),
}


@pytest.mark.parametrize("op", WITHIN)
def test_what_attention_needs_is_told_by_the_layout_of_the_op_that_launched(op):
    shape, count = WITHIN[op]
    outer = "aten::scaled_dot_product_attention"  # which an op of another layout may be within
    shapes, types = f"[{', '.join([shape] * count)}]", '["c10::BFloat16"]'
    needed = needed_ms(
        work("a", 9.0, outer, op, shapes=shapes, dtypes=types), {"matmul.bf16": 1e15}, causal=True
    )
    forward = 4 * 4 * 16 * 4096 * 4096 * 104 / 2  # FLOPs of both products
    assert needed == pytest.approx(1e3 * forward * (2.5 if "backward" in op else 1) / 0.65e15)


def test_a_mask_over_few_long_heads_costs_the_same_whichever_op_is_recorded():
    wide, types = ["[4, 16, 4096, 128]", "[4, 4096, 16, 128]"], '["c10::BFloat16"]'
    inner = "aten::_efficient_attention_forward"
    result = {}
    for shape, ops in zip(
        wide, ([SDPA + "efficient_attention"], [SDPA + "efficient_attention", inner]), strict=True
    ):
        given = work("fmha", 3.2, *ops, shapes=f"[{shape}, {shape}, {shape}, [4096, 4096]]", dtypes=types)
        known = signals([], kernels_work=[given], kernels_ceilings={"matmul.bf16": 800e12})
        result[ops[-1]] = raised(known, "kernels-materialised-mask")["kernels-materialised-mask"].changes
    (change,) = set(result.values())
    # Half of 4 · 64 heads · 4096² pairs · 128 FLOPs at 0.65 of the ceiling: 0.53 of 3.2 ms.
    assert float(change[0].rpartition("=")[2]) == pytest.approx(0.165, abs=0.002)


@pytest.mark.programs
@pytest.mark.parametrize(
    ("op", "rest"),
    [
        ("_efficient_attention_forward", (None, None, None, None, None, 0.0, 0, True)),
        ("_flash_attention_forward", (None, None, 5, 5, 0.0, False, False)),
        ("_scaled_dot_product_efficient_attention", (None, True)),
        ("_scaled_dot_product_flash_attention", ()),
        ("_scaled_dot_product_cudnn_attention", (None, True)),
    ],
)
def test_heads_are_where_torch_has_them(op, rest):
    torch = pytest.importorskip("torch")
    query = torch.empty(2, 5, 5, 64, device="meta", dtype=torch.bfloat16)
    three = query[:, :3] if layout_of(work("a", 1.0, f"aten::{op}")).heads_first else query[:, :, :3]
    statistics = getattr(torch.ops.aten, op)(three, three, three, *rest)[1]
    assert statistics.shape[:2] == (2, 3)  # one a head


def test_a_cache_that_grows_by_a_row_is_a_concatenation_of_much_and_little():
    assert grows("[[[1, 8, 100, 64], [1, 8, 1, 64]], []]")
    for other in (
        "[[[8, 100], [8, 100]], []]",
        "[[[1, 8, 4, 64], [1, 8, 100, 64]], []]",
        "[[], []]",
        "nonsense",
        "[1, 2]",
        None,
        "{}",
    ):
        assert not grows(other)


def chain(*ops: str, last: int = 1024) -> Chain:
    return Chain(ops, 4.0, {"elementwise_kernel": 3.0}, 6.0, 1 << 20, last)


def test_chains_save_all_but_one_pass():
    item = chain("aten::mul", "aten::add", "aten::mul")
    given = signals([], kernels_chains=[item], kernels_work=[work("elementwise_kernel", 4.0)])
    findings = raised(given, "kernels-unfused-elementwise")
    assert findings["kernels-unfused-elementwise"].changes == ("family:elementwise_kernel=0.250000",)
    assert raised(signals([], kernels_chains=[], kernels_work=[]), "kernels-unfused-elementwise") == {}


def test_recomputing_is_needless_only_while_memory_is_free():
    ledger = [compute("gemm", 8.0, product_flops=8e12, recomputed_flops=2e12), compute("add", 2.0)]
    for used, expected in ((30e9, {"kernels-needless-recomputation"}), (130e9, set())):
        given = signals(ledger, device_used_bytes=used, device_memory_bytes=141e9)
        findings = raised(given, "kernels-needless-recomputation")
        assert set(findings) == expected
    assert (
        sum(
            c.ms
            for c in raised(
                signals(ledger, device_used_bytes=1e9, device_memory_bytes=141e9),
                "kernels-needless-recomputation",
            )["kernels-needless-recomputation"].claims
        )
        == 2.0
    )


MEASURES = {
    "kernels-uncoalesced": {"sector_use_ld": 25.0},
    "kernels-bank-conflicts": {"bank_conflicts_ld": 31.0},
    "kernels-register-spills": {"local_per_thread": 128.0},
    "kernels-divergence": {"threads_per_instruction": 8.0},
    "kernels-wave-quantisation": {"tail": 55.0, "waves": 1.1},
    "kernels-low-occupancy": {"theoretical_occupancy": 12.5, "grid_covers": 100.0},
}
WELL = {
    "sector_use_ld": 95.0,
    "bank_conflicts_ld": 0.0,
    "local_per_thread": 0.0,
    "threads_per_instruction": 32.0,
    "tail": 97.0,
    "waves": 9.0,
    "theoretical_occupancy": 80.0,
    "grid_covers": 100.0,
}


@pytest.mark.parametrize("kind", MEASURES)
def test_measures_beyond_what_is_healthy_name_their_kind(kind):
    ledger = [compute("mine", 10.0)]
    family = Family("mine", 8.0, "latency", 0.3, WELL | MEASURES[kind])
    assert set(raised(signals(ledger, kernels_counted=[family]), kind)) == {kind}
    small = Family("mine", 0.05, "latency", 0.3, WELL | MEASURES[kind])
    well, unknown = Family("mine", 8.0, "", None, WELL), Family("mine", 8.0, "", None, {})
    assert raised(signals(ledger, kernels_counted=[small, well, unknown]), kind) == {}


def test_no_rule_looks_at_families_without_portraits():
    rules = [cache.SHARE, atomics.SHARE, sampled.SHARE, sampled.SPILLING_SHARE]
    named = [pieces.NAMED, LEAST]  # by the account, with the limit that counters show
    shares = [row.share for rows in measures.ROWS.values() for row in rows]
    assert min(*shares, *rules, *named) >= SMALL


def test_a_bank_conflict_of_32_ways_takes_32_turns():
    family = Family("mine", 8.0, "", None, {"bank_conflicts_ld": 31.0})
    findings = raised(signals([compute("mine", 10.0)], kernels_counted=[family]), "kernels-bank-conflicts")
    assert findings["kernels-bank-conflicts"].changes == ("family:mine=0.031250",)


QUEUE = {"occupancy": 96.0, "l1_to_l2": 1.2, "l1_from_l2": 0.05}


@pytest.mark.parametrize(
    ("used", "instructions", "expected"),
    [
        (0.012, {}, True),
        (0.6, {}, False),  # a stream of stores: it fills what it writes to
        (0.012, {"occupancy": 6.0}, False),  # few warps: there is little to do
        (0.012, {"l1_from_l2": 0.9}, False),  # loads that wait for each other are answered
        (0.012, {"l1_to_l2": 0.01, "l1_from_l2": 0.0}, False),  # it waits for something else than L2
        (None, {}, False),
    ],
)
def test_warps_that_only_send_and_wait_are_queued_at_few_places(used, instructions, expected):
    ledger = [compute("mine", 10.0)]
    family = Family("mine", 8.0, "latency", used, WELL | QUEUE | instructions)
    findings = raised(signals(ledger, kernels_counted=[family], kernels_work=[]), "kernels-atomics")
    assert set(findings) == ({"kernels-atomics"} if expected else set())
    if expected:
        assert findings["kernels-atomics"].changes == (f"family:mine={used / 0.5:.6f}",)


SCORES = "[[8, 16, 512, 512]]"


@pytest.mark.parametrize(
    ("works", "expected"),
    [
        ([work("gemm", 1.0, "aten::_scaled_dot_product_attention_math", "aten::bmm")], 1.0),
        (
            [
                work("gemm", 1.0, "aten::bmm", shapes="[[128, 512, 64], [128, 64, 512]]"),
                work("softmax", 2.0, "aten::_softmax", shapes=SCORES),
                work("mul", 3.0, "aten::mul", shapes=SCORES),
                work("linear", 9.0, "aten::mm", shapes="[[4096, 512], [512, 512]]"),
                work("norm", 9.0, "aten::mul", shapes="[[8, 512, 512]]"),  # as wide as there are tokens
            ],
            6.0,
        ),
        ([work("softmax", 2.0, "aten::_softmax", shapes=SCORES)], None),
        ([work("softmax", 2.0, "aten::_softmax", shapes="[[4096, 50304]]")], None),
        ([work("flash", 2.0, "aten::_flash_attention_forward", shapes=SCORES)], None),
    ],
)
def test_attention_in_steps_is_all_work_on_its_scores(works, expected):
    findings = raised(signals([], kernels_work=works), "kernels-math-attention")
    if expected is None:
        assert findings == {}
    else:
        assert findings["kernels-math-attention"].evidence[0].value == expected


def test_offloading_is_as_many_bytes_out_as_in_while_memory_is_free():
    out, back = (work(way, 4.0, entry="copy", bytes=1e8) for way in ("DtoH pinned", "HtoD pinned"))
    for works, used, expected in (
        ([out, back], 2e9, {"kernels-memory-headroom"}),
        ([out, back], 120e9, set()),
        ([back], 2e9, set()),
        ([out], 2e9, set()),
    ):
        given = signals([], kernels_work=works, device_used_bytes=used, device_memory_bytes=141e9)
        assert set(raised(given, "kernels-memory-headroom")) == expected
