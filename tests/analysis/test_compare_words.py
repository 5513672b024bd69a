"""The headline of a comparison: the work that moved, in a few short names."""

from __future__ import annotations

import re

import msgspec
import pytest

from fathom.analysis.compare import Cause, Change, SoundingComparison, compare, leading
from tests.analysis.test_compare import pair

TILES = [
    f"sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize{n}x64x8_stage3_warpsize1x4x1" for n in (64, 128, 256)
]
OTHERS = [f"cutlass_{n}_tensorop_gemm" for n in range(5)]


def change(op: str, ms: float, before=("k",), after=("k",), aligned: str = "op", causes=()) -> Change:
    ns = round(ms * 1e6)
    return Change(
        "compute", after[0] if after else before[0], max(-ns, 0), max(ns, 0), ns, 0.0, True, aligned,
        list(before), list(after), op=op, ops=op, causes=list(causes),
    )  # fmt: skip


def led(*changes: Change) -> str:
    total = sum(row.change_ns for row in changes)
    return leading(
        SoundingComparison(
            "faster", "", "clean median", "train", 20_000_000, 20_000_000 + total, total, 0.5, None, 0.01,
            True, [], [], list(changes), [], [], [],
        )
    )  # fmt: skip


def test_at_most_two_kernels_are_named_and_the_others_counted():
    shaped = [f"{name} {place}x1x1·128x1x1" for place, name in enumerate([*TILES, *OTHERS])]
    cause = Cause("kernel choice", "kernels of aten::mm", ", ".join(shaped), "nvjet", -8.0)
    text = led(change("aten::mm", -8.0, shaped, ["nvjet_tst 1x1x1·1x1x1"], causes=[cause]))
    assert text.startswith("Most of it: aten::mm -8 ms (kernels of aten::mm: sm80_xmma_gemm_f32f32")
    assert "cutlass_0_tensorop_gemm, 4 more → nvjet_tst)" in text
    assert text.count("sm80_xmma") == 1  # tiles of one family
    assert max(map(len, text.split())) < 40


def test_changes_of_one_op_are_one_part():
    text = led(change("aten::mm", -3.0), change("aten::add", -4.0), change("aten::mm", -3.0))
    assert text.startswith("Most of it: aten::mm -6 ms")
    assert led(change("", -4.0, before=["x" * 90], after=["x" * 90])).count("x") < 40


def test_attention_is_named_as_one_thing():
    text = led(
        change("aten::_flash_attention_forward", -2.0),
        change("aten::_flash_attention_backward", -3.0),
        change("aten::mm", -4.0),
    )
    assert text == "Most of it: attention -5 ms."


def test_work_that_moved_the_other_way_does_not_lead():
    assert led(change("aten::mm", 3.0), change("aten::add", -4.0)).startswith("Most of it: aten::add -4 ms")
    offset = led(change("aten::mm", 3.0), change("aten::mm", -3.5), change("aten::add", -1.0))
    assert offset.startswith("Most of it: aten::add -1 ms")


def test_a_small_certain_part_of_a_change_is_not_said_to_be_its_largest():
    noise = [msgspec.structs.replace(change(f"aten::op{n}", -1.0), moved=False) for n in range(5)]
    text = led(change("aten::mul", -0.1), *noise)
    assert text == "Most of it is within the noise of single entries. Beyond noise: aten::mul -0.1 ms."
    many = [change(f"aten::op{n}", -0.4) for n in range(12)]
    assert led(change("aten::mul", -0.41), *many).startswith("Largest part: aten::mul -0.41 ms")


def test_fused_attention_of_one_side_is_named():
    fused = change("aten::_cudnn_attention_forward", 1.0, (), ("flash",), aligned="candidate only")
    eager = change("aten::_softmax", -9.0, ("softmax",), (), aligned="baseline only")
    assert "Only the candidate runs fused attention (aten::_cudnn_attention_forward)." in led(eager, fused)
    both = change("aten::_cudnn_attention_forward", 1.0)
    assert "Only" not in led(eager, both)


def test_fused_attention_of_a_recording_is_named():
    """On an H200: attention in separate ops, and as cuDNN's kernels."""
    fused, separate = pair("two.attention_and_norm")
    assert "Only the candidate runs fused attention (aten::_cudnn" in compare([separate], [fused]).headline
    assert "Only the baseline runs fused attention (aten::_cudnn" in compare([fused], [separate]).headline


@pytest.mark.parametrize("name", ["two.layout_and_precision", "two.tf32_and_optimizer"])
def test_headlines_of_recordings_are_short(name: str):
    for sides in (pair(name), pair(name)[::-1]):
        headline = compare(*([run] for run in sides)).headline
        assert len(headline) < 420 and max(map(len, re.split(r"[\s,]+", headline))) < 45
