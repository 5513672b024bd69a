"""Multiply weights of four bits by a few vectors while decoding, with torch's own kernels.

    fathom lab run int4-weights

in_full reads weights in the format of the vectors; int4_weights reads four bits per weight.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

SIZE = 64  # weights of a row that share a scale
LARGEST, MIDDLE = 15, 8  # codes
INNER = 8  # tiles that the GPU's kernel loads at once: 16 bytes per thread
Packed = tuple[Tensor, Tensor]  # codes, and scales and middles (groups, rows, 2)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Packed]:
    """Return a vector, rounded weights, and the same weights packed.

    All are bfloat16 on a processor too, whose kernel for float32 is slower than the product in full.
    """
    draw = Draw(seed, device)
    out, width = draw.shape([(65536, 4096), (8192, 1024)])
    x, weight = (draw.normal(rows, width, dtype=torch.bfloat16) for rows in (1, out))
    codes, scales = rounded(weight)
    return x, restored(codes, scales), packed(codes, scales)


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the codes of weights (rows, width), and scales and middles in the format of the weights."""
    groups = weight.float().unflatten(1, (-1, SIZE))
    low, high = groups.aminmax(dim=2)
    scale = ((high - low) / LARGEST).clamp(min=1e-6).to(weight.dtype).float()
    codes = ((groups - low.unsqueeze(2)) / scale.unsqueeze(2)).round_().clamp_(0, LARGEST)
    scales = torch.stack([scale, low + MIDDLE * scale], dim=2).to(weight.dtype)
    return codes.to(torch.int32).flatten(1), scales.transpose(0, 1).contiguous()


def restored(codes: Tensor, scales: Tensor) -> Tensor:
    """Return the weights that the codes mean."""
    scale, middle = scales.float().permute(2, 1, 0).unsqueeze(3)
    groups = (codes - MIDDLE).unflatten(1, (-1, SIZE))
    return (groups * scale + middle).flatten(1).to(scales.dtype)


def packed(codes: Tensor, scales: Tensor) -> Packed:
    """Return the weights as the kernel of their device wants them.

    The processor's takes one int32 per code, the GPU's a byte for two, the first one in the upper half.
    """
    if not codes.is_cuda:
        return torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, INNER), scales
    pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
    return torch.ops.aten._convert_weight_to_int4pack(pairs, INNER), scales


def in_full(x: Tensor, weight: Tensor, packed: Packed) -> Tensor:
    return F.linear(x, weight)


def int4_weights(x: Tensor, weight: Tensor, packed: Packed) -> Tensor:
    """title: Store weights in four bits for decoding
    pair: {group: framework, plain: in_full, reference: in_full}
    saves: memory bandwidth of the weights
    idea: With few rows, bytes of the weights determine the time of a product. Four bits per weight, with a
      scale and a middle for each 64, take 4.5 bits on a GPU instead of the 16 of bf16. torch has kernels that
      convert them on their way to the multiplication; the layout differs between processors and GPUs.
    cost: Rounding. A model of the next character with 1.6 million weights has a perplexity of 9.47 instead of
      9.42 on text that it was not trained on, 0.5 % more. Both forms here get the same rounded weights, so
      that the verdict compares the products alone.
    not_when: Many rows are multiplied at once (products bound the time), or the task suffers from the
      rounding; then use eight bits, or a method that adapts weights to it, as GPTQ and AWQ do.
    shows: {dram__bytes_read.sum: two per weight → a little over half of one}
    tips: [inference.weight-int8]
    findings: {kernels-weight-bound-decode: 3, kernels-dequantised-weights: 3}
    needs: {torch: "2.6"}
    proof: {precision: bf16}"""
    if x.is_cuda:
        return torch.ops.aten._weight_int4pack_mm(x, packed[0], SIZE, packed[1])
    return torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed[0], SIZE, packed[1])


def work(x: Tensor, weight: Tensor, packed: Packed) -> dict[str, float]:
    return {"bytes": float(sum(part.nbytes for part in packed))}
