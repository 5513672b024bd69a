"""Multiply weights by one vector while decoding, in Triton.

    fathom lab run int8-weights programmatic-launch

in_bf16 reads two bytes per weight, int8_weights one. one_after_another runs a stack of layers; in
programmatic_launch each kernel loads its weights before its predecessor ends.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from fathom.lab import Draw, traffic

ROWS, PAIR = 4, 2  # rows per program
Given = tuple[Tensor, Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    out, width = draw.size(gpu=163840, cpu=12), draw.size(gpu=8192, cpu=2048)
    weight = draw.normal(out, width, dtype=draw.dtype, scale=width**-0.5)
    scale = weight.abs().amax(dim=1).float() / 127
    narrow = (weight / scale.unsqueeze(1)).round_().to(torch.int8)
    return draw.normal(1, width, dtype=draw.dtype), weight, narrow, scale


def in_bf16(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, weight)


@triton.jit
def _widened(weight, QUICK: tl.constexpr):
    # Each byte, its sign turned over, becomes the last of 2^23's mantissa: 2^23 + 128 more than it was.
    if QUICK:
        bits = tl.inline_asm_elementwise(
            """
            {
                .reg .b32 turned;
                xor.b32 turned, $4, 0x80808080;
                prmt.b32 $0, turned, 0x4B000000, 0x7440;
                prmt.b32 $1, turned, 0x4B000000, 0x7441;
                prmt.b32 $2, turned, 0x4B000000, 0x7442;
                prmt.b32 $3, turned, 0x4B000000, 0x7443;
            }""",
            "=r,=r,=r,=r,r",
            [weight],
            dtype=tl.float32,
            is_pure=True,
            pack=4,
        )
        wide = bits - 8388736.0
    else:
        wide = weight.to(tl.float32)
    return wide


@triton.jit
def _decoded(out, x, narrow, scale, ROWS: tl.constexpr, WIDTH: tl.constexpr, QUICK: tl.constexpr):
    rows, at = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    weight = tl.load(narrow + rows[:, None] * WIDTH + at[None, :], eviction_policy="evict_first")
    given = tl.load(x + at, eviction_policy="evict_last").to(tl.float32)
    total = tl.sum(_widened(weight, QUICK) * given[None, :], axis=1)
    tl.store(out + rows, total * tl.load(scale + rows))


def int8_weights(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    """title: Store weights in eight bits for decoding
    pair: {group: framework, plain: in_bf16, reference: in_bf16}
    saves: HBM bandwidth of the weights
    idea: With one row, a product reads every weight for two operations, so bytes determine the time. Weights
      rounded to int8, with a scale per row, take half the bytes of bf16. They are converted in registers on
      their way to the multiplication, which stays in float32.
    cost: At best half the time. Rounding adds an error of about 0.8 % of a row's size, below that of bf16
      products; outliers in a row cost more (scale by groups, or keep them in bf16). Conversions are slower
      than other instructions. Assembling floats from bits instead raised the result from 82 to 86 % of HBM's
      ceiling on an H200, and four rows with eight warps instead of two with four raised it to 92 %.
    not_when: Many rows are multiplied at once (tensor cores decide, and conversions cost), or the converted
      weights are written to memory before the product, which is slower than bf16.
    shows: {dram__bytes_read.sum: two per weight → one per weight}
    tips: [inference.weight-int8, inference.fused-dequantisation]
    findings: {kernels-weight-bound-decode: 1, kernels-dequantised-weights: 1}
    needs: {packages: [triton]}
    proof: {precision: bf16}"""
    rows, width = narrow.shape  # the width is a power of two
    out = x.new_empty(1, rows)
    given = (out, x, narrow, scale)
    _decoded[(rows // ROWS,)](*given, ROWS=ROWS, WIDTH=width, QUICK=x.is_cuda, num_warps=8)
    return out


work = traffic(0, 0, 1)


def layers(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    layers, width = draw.size(gpu=48, cpu=3), draw.size(gpu=4096, cpu=64)
    return draw.normal(width), draw.normal(layers, width, width, dtype=draw.dtype, scale=width**-0.5)


@triton.jit
def _layer(out, weight, x, WIDTH: tl.constexpr, ROWS: tl.constexpr, EARLY: tl.constexpr):
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    if EARLY:
        gdc_launch_dependents()
    loaded = tl.load(weight + rows[:, None] * WIDTH + columns[None, :])
    if EARLY:
        gdc_wait()
    state = tl.load(x + columns)
    total = tl.sum(loaded.to(tl.float32) * state[None, :], axis=1)
    tl.store(out + rows, tl.load(x + rows) + tl.maximum(total, 0.0))


def _layers(x: Tensor, weights: Tensor, *, early: bool) -> Tensor:
    """Run the layers. `early` launches all but the first early, whose weights may just have been written."""
    states = weights.new_empty(len(weights), len(x), dtype=x.dtype)
    for number, weight in enumerate(weights):
        how = {"launch_pdl": True} if early and number else {}
        grid = (len(x) // PAIR,)
        _layer[grid](states[number], weight, x, WIDTH=len(x), ROWS=PAIR, EARLY=early, num_warps=4, **how)
        x = states[number]
    return x.clone()


def one_after_another(x: Tensor, weights: Tensor) -> Tensor:
    return _layers(x, weights, early=False)


def programmatic_launch(x: Tensor, weights: Tensor) -> Tensor:
    """title: Start kernels before their predecessor ends
    pair: {group: schedule, plain: one_after_another, inputs: layers, reference: layers_reference, work:
      layers_work}
    saves: the gap between kernels, and the latency of first loads
    idea: A token passes through a chain of small kernels. Each waits for the last block of the one before and
      only then loads its weights, which nothing changes. With programmatic dependent launch, a kernel starts
      as soon as all blocks of its predecessor run, loads its weights, and waits for the predecessor's result
      only where it needs it.
    cost: A launch attribute and two instructions. Waiting blocks hold registers that others could use.
    not_when: Kernels fill the chip for long, which makes the gap negligible, or all their work depends on the
      predecessor. Data loaded ahead of the wait must be older than the whole chain.
    shows:
      gap between kernels: about a microsecond → none, they overlap
      dram__throughput.avg.pct_of_peak_sustained_elapsed: half or less → higher
    tips: [scheduling.programmatic-launch]
    findings: {kernels-weight-bound-decode: 4}
    needs: {capability: 9.0, packages: [triton], torch: "2.8"}
    proof: {precision: bf16}"""
    return _layers(x, weights, early=x.is_cuda)


def layers_reference(x: Tensor, weights: Tensor) -> Tensor:
    for weight in weights:
        x = x + torch.relu(weight.to(x.dtype) @ x)
    return x


layers_work = traffic(0, 1)
