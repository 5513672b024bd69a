"""Multiply many small matrices, as a mixture of experts does.

    fathom lab run batched-products unpadded-experts

one_by_one launches a product per pair; batched_products launches one. padded gives every expert as much room
as the busiest; unpadded_experts multiplies only real tokens.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw, matmul_unit, normal

COUNT = (128, 12)  # on a GPU, on a processor
inputs = normal((COUNT, 64, 64), (COUNT, 64, 64))


def one_by_one(left: Tensor, right: Tensor) -> Tensor:
    return torch.stack([a @ b for a, b in zip(left, right, strict=True)])


def batched_products(left: Tensor, right: Tensor) -> Tensor:
    """title: Batch many small products
    pair: {group: schedule, plain: one_by_one}
    saves: launches, and idle multiprocessors
    idea: A product of 64 by 64 fills a few of 132 multiprocessors for a few microseconds, less than its
      launch takes. torch.bmm computes all of them side by side in one launch.
    cost: One launch instead of one per product, and the total work spread over the whole chip.
    not_when: The products are large enough to fill the chip, or have different shapes (see grouped-products).
    shows:
      kernel launches: one per product → one
      sm__ctas_active.avg.pct_of_peak_sustained_elapsed: a few percent → most of the chip
    tips: [scheduling.batched-products]
    findings: {kernels-serial-small-products: 1, host-launch-bound: 7}
    proof: {latency: included}"""
    return torch.bmm(left, right)


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * left.numel() * right.shape[-1], "bytes": 3 * left.nbytes, "unit": "vector.fp32"}


def routed(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    tokens, width, out, experts = draw.shape([(16384, 60), (2048, 32), (2048, 16), (64, 4)])
    chosen = (experts * draw.uniform(tokens) ** 1.5).long().clamp(max=experts - 1)  # some experts are busier
    x = draw.normal(tokens, width, dtype=draw.dtype)
    weights = draw.normal(experts, width, out, dtype=draw.dtype, scale=width**-0.5)
    return x, weights, torch.bincount(chosen, minlength=experts)


def padded(x: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    room, ends = int(counts.max()), counts.cumsum(0)
    expert = torch.searchsorted(ends, torch.arange(len(x), device=x.device), right=True)
    place = torch.arange(len(x), device=x.device) - (ends - counts)[expert]
    padded = x.new_zeros(len(weights), room, x.shape[1])
    padded[expert, place] = x
    return torch.bmm(padded, weights)[expert, place]


def unpadded_experts(x: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """title: Multiply experts without padding
    pair: {group: framework, plain: padded, reference: padded, inputs: routed, work: routed_work}
    saves: arithmetic and bandwidth spent on padding, and a wait of the host
    idea: To multiply all experts in one batched product, each gets room for as many tokens as the busiest,
      and the host must know that number. A grouped product takes the tokens sorted by expert, and each
      expert's end, on the device.
    cost: The library's grouped kernel instead of its batched one. Rows fall from experts times the busiest to
      the number of tokens, that is by half if the busiest has twice its share.
    not_when: The router balances perfectly, or drops tokens beyond a fixed capacity. There are few experts,
      or the dtype is not bf16, for which torch falls back to a loop.
    shows:
      rows of the products per token: experts times the busiest / tokens → one
      ledger, idle by synchronisation: once per layer → none
    tips: [operators.expert-capacity]
    findings: {host-sync-item: 3}
    needs: {gpu: true, capability: 8.0, torch: "2.10"}
    proof: {latency: included}"""
    return F.grouped_mm(x, weights, offs=counts.cumsum(0).int())


def routed_work(x: Tensor, weights: Tensor, counts: Tensor) -> dict[str, float | str]:
    moved = weights.nbytes + x.nbytes + x.nbytes * weights.shape[2] / weights.shape[1]
    return {"flops": 2.0 * x.numel() * weights.shape[2], "bytes": moved, "unit": matmul_unit(x)}
