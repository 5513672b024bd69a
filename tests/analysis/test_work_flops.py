"""FLOPs against torch's own counter, on ops that a CPU really ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from fathom.analysis.work import annotate_ops
from fathom.analysis.work.attention import ATTENTION_LAYOUTS as ATTENTION
from fathom.analysis.work.convolution import LAYOUTS as CONVOLUTION
from fathom.analysis.work.registry import FORMULAS
from tests.support.work_frames import recorded

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

MATRIX = ("mm", "linear", "matmul", "mv", "dot", "conv", "attention")


def counted(program: Callable[[], Any]) -> tuple[float, float]:
    """FLOPs of products, convolutions and attention: ours of a recording, and torch's count."""
    program()
    ops = annotate_ops(recorded(program))
    ours = ops.filter(pl.col("name").str.contains("|".join(MATRIX)))["flops"].sum()
    with FlopCounterMode(display=False) as counter:
        program()
    return ours, float(counter.get_total_flops())


def backward(module: nn.Module, *shape: int) -> Callable[[], Any]:
    x = torch.randn(*shape, requires_grad=True)
    return lambda: module(x).sum().backward()


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 8, bias=False)), (5, 7, 24)),
        (nn.Conv2d(6, 8, 3, padding=1), (2, 6, 9, 11)),
        (nn.Conv2d(6, 9, (3, 5), stride=2, dilation=(2, 1), bias=False), (2, 6, 17, 13)),
        (nn.Conv1d(4, 6, 3, padding=2), (3, 4, 20)),
        (nn.Conv3d(2, 4, 3, stride=(1, 2, 2)), (1, 2, 6, 7, 8)),
        (nn.ConvTranspose2d(6, 8, 4, stride=2, padding=1, output_padding=1), (2, 6, 5, 7)),
    ],
)
def test_training_step_equals_torchs_count(module: nn.Module, shape: tuple[int, ...]) -> None:
    ours, theirs = counted(backward(module, *shape))
    assert ours == theirs > 0


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
@pytest.mark.parametrize("groups", [2, 6])
def test_groups_are_that_many_small_convolutions(kind: type[nn.Module], groups: int) -> None:
    """torch's counter takes the gradient of a grouped filter as if it were not grouped."""
    ours, _ = counted(backward(kind(6, 12, 3, stride=2, groups=groups), 2, 6, 9, 11))
    _, item = counted(backward(kind(6 // groups, 12 // groups, 3, stride=2), 2, 6 // groups, 9, 11))
    assert ours == groups * item


@pytest.mark.parametrize(
    "product",
    [
        lambda: torch.randn(4, 5) @ torch.randn(5, 6),
        lambda: torch.bmm(torch.randn(3, 4, 5), torch.randn(3, 5, 6)),
        lambda: torch.baddbmm(torch.randn(3, 4, 6), torch.randn(3, 4, 5), torch.randn(3, 5, 6)),
        lambda: torch.einsum("bhqd,bhkd->bhqk", torch.randn(2, 3, 4, 5), torch.randn(2, 3, 6, 5)),
        lambda: torch.randn(2, 1, 4, 5) @ torch.randn(3, 5, 6),
    ],
)
def test_products_equal_torchs_count(product: Callable[[], Any]) -> None:
    ours, theirs = counted(product)
    assert ours == theirs > 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2)])
def test_attention_halves_a_causal_square_and_counts_no_recomputation(
    causal: bool, heads: int, kv_heads: int
) -> None:
    q = torch.randn(2, heads, 32, 16, requires_grad=True)
    k, v = (torch.randn(2, kv_heads, 32, 16, requires_grad=True) for _ in range(2))

    def program() -> None:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != kv_heads)
        out.sum().backward()

    ours, _ = counted(program)
    forward = 2 * 2 * (2 * heads * 32 * 32 * 16)  # two products over every pair
    assert ours == 3 * forward * (0.5 if causal else 1)  # backward: four products, nothing recomputed


@pytest.mark.parametrize("name", [name for name in ATTENTION if name.startswith("aten::")])
def test_attention_arguments_are_where_torch_has_them(name: str) -> None:
    names = _arguments(name)
    layout = ATTENTION[name]
    assert names[layout.query : layout.query + 3] == ["query", "key", "value"]
    places = {layout.causal: "is_causal", layout.mask_type: "custom_mask_type"}
    for place, expected in places.items():
        assert place < 0 or names[place] == expected
    assert layout.bias < 0 or names[layout.bias] in ("attn_bias", "attn_mask", "bias")
    assert all("seq" in names[i] for i in layout.offsets)
    assert all("window_size" in names[i] for i in layout.window)


@pytest.mark.parametrize("name", CONVOLUTION)
def test_convolution_arguments_are_where_torch_has_them(name: str) -> None:
    names = _arguments(name)
    for argument in ("stride", "padding", "dilation", "groups", "bias", "transposed", "output_padding"):
        place = getattr(CONVOLUTION[name], argument)
        assert place < 0 or names[place] == argument


@pytest.mark.parametrize("name", [n for n in FORMULAS if n.startswith("aten::") and not n.endswith("_")])
def test_every_formula_is_of_an_operator_that_exists(name: str) -> None:
    assert hasattr(torch.ops.aten, name.removeprefix("aten::"))


def _arguments(name: str) -> list[str]:
    operator = getattr(torch.ops.aten, name.removeprefix("aten::"))
    overloads = operator.overloads()
    overload = "default" if "default" in overloads else overloads[0]
    return [argument.name for argument in getattr(operator, overload)._schema.arguments]


def test_a_recurrent_layer_has_the_flops_of_its_cell_for_each_element() -> None:
    layer, cell, x = nn.LSTM(12, 20), nn.LSTMCell(12, 20), torch.randn(7, 3, 12)

    def cells() -> None:
        state = None
        for element in x:
            state = cell(element, state)

    def train() -> None:
        layer(x)[0].sum().backward()

    with FlopCounterMode(display=False) as counter:
        cells()
    train()
    ops = annotate_ops(recorded(train)).filter(pl.col("name").str.contains("mkldnn_rnn_layer"))
    if ops.is_empty():
        pytest.skip("this build of PyTorch runs an LSTM with other operators")
    flops = dict(ops.group_by("name").agg(pl.col("flops").sum()).iter_rows())
    forward = float(counter.get_total_flops())
    assert flops == {"aten::mkldnn_rnn_layer": forward, "aten::mkldnn_rnn_layer_backward": 2 * forward}
