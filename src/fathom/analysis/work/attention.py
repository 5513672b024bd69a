"""Attention: two products over the (query, key) pairs that the mask keeps; four in the backward pass.

A causal mask keeps half of a square. Recomputation in the backward pass is executed work, not algorithmic
work, so it is not counted. As is usual, the softmax is not counted either.
"""

from __future__ import annotations

import msgspec

from fathom.analysis.work.call import Call, Formula, Tensor, UnknownWorkError, Work, same


class AttentionLayout(msgspec.Struct, frozen=True):
    """Positions of an attention op's arguments; -1: none."""

    query: int = 0  # key and value follow it
    causal: int = -1
    heads_first: bool = True  # [B, H, S, D], else [B, S, H, D]
    bias: int = -1
    offsets: tuple[int, ...] = ()  # tensors that are present for packed sequences of several lengths
    window: tuple[int, ...] = ()  # sizes of a sliding window
    mask_type: int = -1  # 0 none, 1 causal from the top left, 2 from the bottom right
    bottom_right: bool = False  # alignment of `causal` if the lengths differ
    backward: bool = False


class _Sizes(msgspec.Struct, frozen=True):
    batch: int
    heads: int
    q_len: int
    k_len: int
    depth: int  # of queries and keys
    width: int  # of values


def _formula(layout: AttentionLayout) -> Formula:
    def formula(call: Call) -> Work:
        _refuse_varying_lengths(call, layout)
        q, k, v = (call.tensor(layout.query + i) for i in range(3))
        sizes = _sizes(q, k, v, layout.heads_first)
        pairs = sizes.batch * sizes.heads * _pairs(sizes, _mask(call, layout))
        products = 4 if layout.backward else 2  # half of them over the depth, half over the width
        flops = products * pairs * (sizes.depth + sizes.width)
        return Work(float(flops), _bytes(call, layout, sizes, q, k, v), q.dtype)

    return formula


def _refuse_varying_lengths(call: Call, layout: AttentionLayout) -> None:
    if any(call.has(i) for i in layout.offsets):
        raise UnknownWorkError("the lengths of packed sequences are not recorded")
    if any(call.value(i) not in ("", "-1", "None") for i in layout.window):
        raise UnknownWorkError("attention over a sliding window is not supported")


def _sizes(q: Tensor, k: Tensor, v: Tensor, heads_first: bool) -> _Sizes:
    for tensor in (q, k, v):
        if len(tensor.shape) != 4:
            raise UnknownWorkError("attention over packed sequences does not record their lengths")
    head, seq = (1, 2) if heads_first else (2, 1)
    same(k.shape[seq], v.shape[seq])
    same(q.shape[3], k.shape[3])
    if not k.shape[head] or q.shape[head] % k.shape[head]:
        raise UnknownWorkError("the number of its query heads is not a multiple of that of its key heads")
    return _Sizes(q.shape[0], q.shape[head], q.shape[seq], k.shape[seq], q.shape[3], v.shape[3])


def _mask(call: Call, layout: AttentionLayout) -> str:
    if layout.mask_type >= 0:
        return {0: "none", 1: "top-left", 2: "bottom-right"}[call.ints(layout.mask_type)[0]]
    if not call.flag(layout.causal):
        return "none"
    return "bottom-right" if layout.bottom_right else "top-left"


def _pairs(sizes: _Sizes, mask: str) -> float:
    """Return the (query, key) pairs that the mask keeps: S² / 2 for a causal square, with half a diagonal."""
    q, k = sizes.q_len, sizes.k_len
    short = min(q, k)
    if mask == "none":
        return q * k
    corner = short * short / 2
    if mask == "top-left":
        return corner + (q - short) * k
    return corner + (k - short) * q


def _bytes(call: Call, layout: AttentionLayout, sizes: _Sizes, q: Tensor, k: Tensor, v: Tensor) -> float:
    """Return the bytes moved: forward reads q, k and v, and writes the output and log-sum-exp.

    Backward reads all of these and writes the gradients.
    """
    rows = sizes.batch * sizes.heads * sizes.q_len
    out = rows * sizes.width * q.size
    statistics = rows * 4.0
    bias = call.tensor(layout.bias).bytes if call.has(layout.bias) else 0.0
    inputs = q.bytes + k.bytes + v.bytes
    if layout.backward:
        return 2 * inputs + 2 * out + statistics + bias
    return inputs + out + statistics + bias


_SDPA, _FLASH = "aten::_scaled_dot_product_", "aten::_flash_attention_"
ATTENTION_LAYOUTS = {
    "aten::scaled_dot_product_attention": AttentionLayout(bias=3, causal=5),
    _SDPA + "flash_attention": AttentionLayout(causal=4),
    _SDPA + "flash_attention_for_cpu": AttentionLayout(causal=4, bias=5),
    _SDPA + "efficient_attention": AttentionLayout(bias=3, causal=6),
    _SDPA + "cudnn_attention": AttentionLayout(bias=3, causal=6),
    _SDPA + "fused_attention_overrideable": AttentionLayout(bias=3, causal=5),
    _FLASH + "forward": AttentionLayout(
        causal=8, heads_first=False, offsets=(3, 4, 13), window=(11, 12), bottom_right=True
    ),
    "aten::_efficient_attention_forward": AttentionLayout(
        bias=3, mask_type=9, heads_first=False, offsets=(4, 5, 12), window=(13,)
    ),
    "aten::_cudnn_attention_forward": AttentionLayout(bias=3, causal=10, offsets=(4, 5)),
    _SDPA + "flash_attention_backward": AttentionLayout(1, causal=11, offsets=(6, 7), backward=True),
    _SDPA + "flash_attention_for_cpu_backward": AttentionLayout(1, causal=7, bias=8, backward=True),
    _SDPA + "efficient_attention_backward": AttentionLayout(1, causal=11, bias=4, backward=True),
    _SDPA + "cudnn_attention_backward": AttentionLayout(1, causal=14, bias=8, offsets=(9, 10), backward=True),
    _SDPA + "fused_attention_overrideable_backward": AttentionLayout(
        1, causal=13, bias=4, offsets=(8, 9), backward=True
    ),
    _FLASH + "backward": AttentionLayout(
        1,
        causal=11,
        heads_first=False,
        offsets=(6, 7),
        window=(15, 16),
        bottom_right=True,
        backward=True,
    ),
    "aten::_efficient_attention_backward": AttentionLayout(
        1, mask_type=14, heads_first=False, bias=4, offsets=(6, 7), window=(18,), backward=True
    ),
    "aten::_cudnn_attention_backward": AttentionLayout(1, causal=14, bias=8, offsets=(9, 10), backward=True),
    "flash_attn::_flash_attn_forward": AttentionLayout(
        causal=5, heads_first=False, window=(6, 7), bottom_right=True
    ),
    "flash_attn::_flash_attn_backward": AttentionLayout(
        1, causal=11, heads_first=False, window=(12, 13), bottom_right=True, backward=True
    ),
}


def _varlen(call: Call) -> Work:
    raise UnknownWorkError("the lengths of packed sequences are not recorded")


FORMULAS = {name: _formula(layout) for name, layout in ATTENTION_LAYOUTS.items()} | {
    "flash_attn::_flash_attn_varlen_forward": _varlen,
    "flash_attn::_flash_attn_varlen_backward": _varlen,
}
