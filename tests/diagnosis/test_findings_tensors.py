"""Rules over shapes and types of ops, on signals that must raise them, and on those that must not."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from fathom.analysis.results import LedgerRow
from fathom.diagnosis.rules.numbers.sizes import waves_of
from fathom.diagnosis.signals import Chain, Double, Family, Product, Stretched, UnknownSignalError
from fathom.diagnosis.signals.chains import cast_of, needless
from fathom.diagnosis.signals.rows import Kernel
from tests.support.findings_fakes import H200, compute, product, raised, signals, work

BF16, FLOAT = "c10::BFloat16", "float"
CASTING = ["aten::to", "aten::_to_copy", "aten::copy_"]
Q, MASK = [4, 16, 4096, 128], [4, 1, 4096, 4096]


def row(name: str, to: str = "", of: str = "", shape: tuple[int, ...] = (64, 32)) -> Kernel:
    """A kernel as the signal of casts gets it."""
    path = CASTING if to else [name]
    sizes, types = ([list(shape)] * 2, [to, of]) if to else ([list(shape)], [of])
    return Kernel(name, path, json.dumps(sizes), json.dumps(types))


def test_a_cast_between_floats_tells_both_types():
    there = row("up", FLOAT, BF16)
    assert cast_of(there) == ("bf16", "fp32", (64, 32))
    copied = row("copy", FLOAT, FLOAT)
    for path, shapes, dtypes in (
        (CASTING, copied.shapes, copied.dtypes),
        (["aten::copy_"], there.shapes, there.dtypes),
        (CASTING, None, None),
        (CASTING, "nonsense", "[1]"),
        (CASTING, there.shapes, '["float", "long int"]'),
    ):
        assert cast_of(Kernel("copy", path, shapes, dtypes)) is None


UP, DOWN = row("up", FLOAT, BF16), row("down", BF16, FLOAT)


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([UP, DOWN], 2),
        ([UP, DOWN, UP, DOWN], 4),
        ([UP, row("aten::native_layer_norm", of=FLOAT), DOWN], 2),
        ([UP, row("aten::mul", of=FLOAT), DOWN], 0),
        ([DOWN, UP], 0),  # rounds on purpose
        ([UP, row("down", BF16, FLOAT, (8, 8))], 0),
        ([UP], 0),
        ([], 0),
    ],
)
def test_casts_are_needless_when_undone_at_once(rows, count):
    assert len(needless(rows)) == count


def test_needless_casts_cost_all_of_their_time():
    casts = [work("direct_copy_kernel", 3.0, *CASTING, count=8.0)]
    given = signals([], kernels_round_trips=casts, kernels_work=casts)
    result = raised(given, "kernels-needless-casts")["kernels-needless-casts"]
    assert sum(claim.ms for claim in result.claims) == 3.0
    assert result.changes == ("family:direct_copy_kernel=0.000000",)
    empty = signals([], kernels_round_trips=[], kernels_work=casts)
    assert raised(empty, "kernels-needless-casts") == {}


CUDNN = "aten::_scaled_dot_product_cudnn_attention"


@pytest.mark.parametrize(
    ("op", "shapes", "masked"),
    [
        (CUDNN, [Q, Q, Q, MASK], True),
        (CUDNN, [Q, Q, Q, []], False),
        (f"{CUDNN}_backward", [Q, Q, Q, Q, Q, [], [], [], MASK], True),
        (f"{CUDNN}_backward", [Q, Q, Q, Q, Q, [], [], [], []], False),
        (CUDNN, [Q, Q, Q, [4, 1, 1, 4096]], False),  # hides padding
        ("aten::_flash_attention_forward", [Q, Q, Q, MASK], False),
        (CUDNN, [], False),
    ],
)
def test_a_mask_of_all_pairs_is_told_from_one_of_padding(op, shapes, masked):
    item = work("sdpa_flash_fprop", 2.0, op, shapes=json.dumps(shapes), dtypes=json.dumps([BF16]))
    given = signals([], kernels_work=[item], kernels_ceilings=H200)
    assert ("kernels-materialised-mask" in raised(given, "kernels-materialised-mask")) == masked


def test_attention_without_its_mask_takes_half_of_the_products_at_most_half_of_the_time():
    for ms, factor in ((1.5, 0.18), (0.3, 0.5)):
        item = work("sdpa", ms, CUDNN, shapes=json.dumps([Q, Q, Q, MASK]), dtypes=json.dumps([BF16]))
        given = signals([], kernels_work=[item], kernels_ceilings=H200)
        result = raised(given, "kernels-materialised-mask")["kernels-materialised-mask"]
        flops = 4 * 4 * 16 * 4096**2 * 128 / 2
        expected = min(flops / (0.65 * 780e12) * 1e3 / ms, factor if factor == 0.5 else 1.0)
        assert result.changes == (f"family:sdpa={expected:.6f}",)


WORDS = 32768


def over_logits(name: str, ms: float, *ops: str, dtype: str = FLOAT, rows: int = 8192):
    return work(name, ms, *ops, shapes=f"[[{rows}, {WORDS}], [{rows}, {WORDS}]]", dtypes=json.dumps([dtype]))


def test_a_loss_in_pieces_is_all_that_passes_over_the_logits():
    layer = product("nvjet", 1.3, 8192, WORDS, 2048)
    pieces = [
        over_logits("softmax", 0.8, "aten::softmax", "aten::_softmax"),
        over_logits("log", 0.5, "aten::log"),
        over_logits("div", 0.7, "autograd::engine::evaluate_function: LogBackward0", "aten::div"),
        work("relu", 0.5, "aten::relu", shapes="[[8192, 2048]]"),
        layer.work,
    ]
    needed = 1e3 * 7 * 8192 * WORDS * 2 / (0.75 * 4.6e12)
    given = {"numbers_products": [layer], "kernels_ceilings": H200 | {"memory": 4.6e12}}
    findings = raised(signals([], kernels_work=[*pieces, *pieces], **given), "kernels-unfused-loss")
    total = 2 * (0.8 + 0.5 + 0.7)
    item = findings["kernels-unfused-loss"]
    assert item.evidence[0].value == pytest.approx(total)
    assert sum(claim.ms for claim in item.claims) == pytest.approx(total - needed)
    library = [over_logits("softmax", 0.5, "aten::_log_softmax", dtype=BF16), layer.work]
    assert raised(signals([], kernels_work=library, **given), "kernels-unfused-loss") == {}


def test_a_wide_layer_without_a_loss_is_no_vocabulary():
    layer = product("nvjet", 1.3, 8192, WORDS, 2048)
    gelu = over_logits("mul", 5.0, "aten::mul")
    chain = Chain(("aten::mul", "aten::add", "aten::tanh"), 5.0, {"mul": 4.0}, 1.0, 8192 * WORDS, WORDS)
    given = signals(
        [],
        numbers_products=[layer],
        kernels_work=[gelu, layer.work],
        kernels_chains=[chain],
        kernels_ceilings=H200 | {"memory": 4.6e12},
    )
    assert raised(given, "kernels-unfused-loss") == {}
    assert set(raised(given, "kernels-unfused-elementwise")) == {"kernels-unfused-elementwise"}


def test_chains_over_logits_are_the_losss():
    layer = product("nvjet", 1.3, 8192, WORDS, 2048)
    chain = Chain(("aten::mul", "aten::add", "aten::log"), 5.0, {"mul": 4.0}, 1.0, 8192 * WORDS, WORDS)
    works = [over_logits("softmax", 5.0, "aten::_softmax"), layer.work]
    given = signals([], numbers_products=[layer], kernels_work=works, kernels_chains=[chain])
    assert raised(given, "kernels-unfused-elementwise") == {}


def test_double_precision_saves_rates_of_products_and_bytes_of_the_rest():
    works = [work("sm90_xmma_gemm_f64f64", 10.0, "aten::mm"), work("mul<double>", 8.0, "aten::mul")]
    rates = {"matmul.fp64": 60e12, "matmul.tf32": 400e12, "matmul.bf16": 800e12}
    given = signals([], kernels_work=works, kernels_ceilings=rates)
    result = raised(given, "kernels-double-precision")["kernels-double-precision"]
    assert sum(claim.ms for claim in result.claims) == pytest.approx(10 * (1 - 0.1125) + 8 * (1 - 0.375))
    single = signals([], kernels_work=[work("mul<float>", 8.0, "aten::mul")], kernels_ceilings=rates)
    assert raised(single, "kernels-double-precision") == {}


def test_double_precision_on_a_processor_saves_what_is_known_of_each_op():
    ledger = [
        LedgerRow("ops", "aten::mm", 60.0),
        LedgerRow("ops", "aten::gelu", 20.0),
        LedgerRow("ops", "aten::add", 20.0),
    ]
    mine = [Double("aten::mm", 60.0, "train.py(9): forward", "Linear_0"), Double("aten::gelu", 10.0)]
    given = signals(ledger, step_device="cpu", host_doubles=mine, step_mean_ms=50.0)
    result = raised(given, "kernels-double-precision")["kernels-double-precision"]
    assert sum(claim.ms for claim in result.claims) == pytest.approx(60 * 0.5 + 10 * 0.96)
    assert result.gain_ms == pytest.approx((60 * 0.5 + 10 * 0.96) / 2), "clean steps take half as long"
    assert (result.source, result.module) == ("train.py(9): forward", "Linear_0")
    mine = [Double("aten::copy_", 60.0, "train.py(58): update"), Double("aten::mm", 30.0, None, "Linear_0")]
    given = signals(ledger, step_device="cpu", host_doubles=mine, step_mean_ms=100.0)
    result = raised(given, "kernels-double-precision")["kernels-double-precision"]
    assert (result.source, result.module) == ("train.py(58): update", None), "most of the gain is there"
    metric = signals(ledger, step_device="cpu", host_doubles=[Double("aten::mean", 1.0)])
    assert raised(metric, "kernels-double-precision") == {}


def adding(ms: float, places: int, op: str = "aten::index_add_", family: str = "indexFuncLargeIndex"):
    shapes = f"[[{places}, 1024], [], [32768], [32768, 1024], []]"
    return work(family, ms, op, shapes=shapes, dtypes=json.dumps([FLOAT, "", "long int", FLOAT, ""]))


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (adding(5.0, 16), True),
        (adding(0.05, 16), False),  # hidden behind the bytes
        (adding(5.0, 32768), False),  # they seldom meet
        (adding(5.0, 16, "aten::index_select"), False),
        (adding(5.0, 16, family="DeviceRadixSortOnesweep"), False),
        (work("scatter", 5.0, "aten::scatter_add_"), False),
    ],
)
def test_atomics_are_additions_that_meet_and_take_longer_than_their_bytes(measured, expected):
    given = signals([], kernels_work=[measured], kernels_ceilings=H200 | {"memory": 4.6e12})
    findings = raised(given, "kernels-atomics")
    assert ("kernels-atomics" in findings) == expected
    if expected:
        needed = 32768 * 1024 * 4 / 4.6e12 * 1e3
        assert sum(claim.ms for claim in findings["kernels-atomics"].claims) == pytest.approx(5 - 2 * needed)


def test_without_ceilings_atomics_are_not_judged_and_that_is_said():
    with pytest.raises(UnknownSignalError):
        raised(signals([], kernels_work=[adding(5.0, 16)]), "kernels-atomics")
    relu = signals([], kernels_work=[work("relu", 5.0, "aten::relu")])
    assert raised(relu, "kernels-atomics") == {}


def test_all_pairs_multiplied_and_summed_are_a_product():
    mul = work("mul", 5.0, "aten::mul", shapes="[[4096, 1, 512], [1, 512, 512]]")
    total = work("reduce_kernel", 3.0, "aten::sum", shapes="[[4096, 512, 512], [], []]")
    other = work("mul", 5.0, "aten::mul", shapes="[[4096, 512], [1, 512]]")
    for works, expected in (([mul, total, other], 8.0), ([mul, other], None), ([other, total], None)):
        given = signals([], kernels_work=works, numbers_products=[])
        findings = raised(given, "kernels-tensor-cores-idle")
        assert (findings["kernels-tensor-cores-idle"].evidence[0].value if findings else None) == expected


def test_large_products_that_suit_and_are_slow_have_no_tensor_cores():
    needed = 2e3 * 4096**3 / 780e12
    for item, expected in (
        (product("sm80_gemm_align1", 4 * needed, 4096, 4096, 4096), True),
        (product("nvjet", 1.5 * needed, 4096, 4096, 4096), False),
        (product("odd", 4 * needed, 4096, 4096, 4095), False),
        (product("few", 1.0, 64, 4096, 4096), False),
        (product("single", 100 * needed, 4096, 4096, 4096, "fp32"), False),
    ):
        given = signals(
            [],
            kernels_work=[replace(item.work, shapes="[[4096, 4096]]")],
            numbers_products=[item],
            kernels_ceilings=H200,
            device_multiprocessors=132,
        )
        findings = raised(given, "kernels-tensor-cores-idle")
        assert bool(findings) == expected
        if findings:
            claimed = sum(claim.ms for claim in findings["kernels-tensor-cores-idle"].claims)
            assert claimed == pytest.approx(4 * needed - needed / 0.75)


def test_products_beside_another_process_are_not_judged_by_their_rate():
    """Time slices of the other process make kernels of tensor cores slow."""
    item = product("nvjet", 8e3 * 4096**3 / 780e12, 4096, 4096, 4096)
    for stretched, expected in ((Stretched(0.0, 0.0, 0), True), (Stretched(4.0, 2.0, 2), False)):
        given = signals(
            [compute("nvjet", item.work.ms)],
            kernels_work=[replace(item.work, shapes="[[4096, 4096]]")],
            numbers_products=[item],
            kernels_ceilings=H200,
            device_multiprocessors=132,
            device_stretched=stretched,
        )
        assert bool(raised(given, "kernels-tensor-cores-idle")) == expected


def test_a_launch_that_moves_more_than_there_is_reads_again():
    for moved, values, expected in ((2.0e9, 270e6, True), (500e6, 270e6, False)):
        family = Family("gather", 8.0, "dram", 0.9, {"dram_bytes": moved})
        given = signals([compute("gather", 10.0)], kernels_counted=[family], device_allocated_bytes=values)
        findings = raised(given, "kernels-l2-thrash")
        assert bool(findings) == expected
        if findings:
            factor = values / moved + (1 - values / moved) * 0.6
            assert findings["kernels-l2-thrash"].changes == (f"family:gather={factor:.6f}",)
    unknown = Family("gather", 8.0, "", None, {})
    given = signals([compute("gather", 10.0)], kernels_counted=[unknown])
    assert raised(given, "kernels-l2-thrash") == {}


def test_samples_tell_bank_conflicts_by_turns_an_instruction():
    for turns, name, expected in ((2.7, "mine", True), (0.9, "mine", False), (2.7, "nvjet_tst", False)):
        family = Family(name, 8.0, "", None, {"shared_per_instruction": turns})
        given = signals([compute(name, 10.0)], kernels_counted=[family])
        assert bool(raised(given, "kernels-bank-conflicts")) == expected


def tiled(name: str, m: int, n: int, blocks: int = 132) -> Product:
    return Product(m, n, 4096, 1, "bf16", work(name, 5.0, "aten::linear", "aten::mm", blocks=blocks))


NVJET = "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT 2x66x1·384x1x1"


@pytest.mark.parametrize(
    ("measured", "waves"),
    [
        (tiled(NVJET, 3200, 2816), 275 / 132),
        (tiled(NVJET, 3072, 2816), 2.0),
        (tiled("ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f", 3200, 2816, 286), 275 / 132),
        (tiled("sm90_xmma_gemm_bf16bf16_nt_n_tilesize128x256x64_cublas", 3200, 2816), 275 / 132),
        (tiled("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_splitK_NTN", 3200, 2816), None),
        (tiled("gemv2T_kernel_val", 3200, 2816), None),
    ],
)
def test_waves_are_told_by_the_tile_in_a_kernels_name(measured, waves):
    assert waves_of(measured, 132) == (None if waves is None else pytest.approx(waves))
    given = signals([], numbers_products=[measured], kernels_work=[measured.work], device_multiprocessors=132)
    findings = raised(given, "numbers-tile-size")
    assert bool(findings) == (waves is not None and waves > 2)
    if findings:
        assert sum(claim.ms for claim in findings["numbers-tile-size"].claims) == pytest.approx(5 / 3)
        assert findings["numbers-tile-size"].evidence[-1].value == 3072


def test_many_waves_hide_an_empty_last_one():
    item = tiled(NVJET, 128 * 12 * 20 + 128, 2816)
    given = signals([], numbers_products=[item], kernels_work=[item.work], device_multiprocessors=132)
    assert raised(given, "numbers-tile-size") == {}


def test_where_steps_differ_in_shapes_products_are_not_rated():
    slow = product("sm80_gemm_align1", 4.0, 4096, 4096, 4096)
    other = work("nvjet", 4.0, "aten::linear", "aten::mm")
    said = work("sm80_gemm_align1", 4.0, "aten::mm", shapes="[[4096, 4096], [4096, 4096]]")
    for works, expected in (([said], True), ([said, other], False)):
        given = signals(
            [],
            kernels_work=works,
            numbers_products=[slow],
            kernels_ceilings=H200,
            device_multiprocessors=132,
        )
        assert bool(raised(given, "kernels-tensor-cores-idle")) == expected
