"""Write attention as it stands in the paper.

The user believes that softmax(q k) v has to be computed like that. The scores, one for each pair of tokens,
go through memory five times; a fused kernel keeps them on the chip.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Attention, Fault, start
from faults.common import fused_attention as fused

FAULT = Fault(
    kind="kernels-math-attention",
    expected=["kernels-math-attention"],
    forbidden=["kernels-materialised-mask", "kernels-batch-too-small", "kernels-tensor-cores-idle"],
    # not compiled: compiled, gradients of queries, keys and values are joined and put in order at once
    allowed=["framework-not-compiled", "kernels-unfused-elementwise"],
    share=[0.5, 0.65, 0.8],
    why="at 1k, 2k, 4k tokens the scores' bytes outgrow the products of q, k, v more and more",
    needs={"gpu": True},
    agree=1e-2,
)


def by_hand(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ v


def main(options):
    width, length = options.size(2048, 32), options.size(options.by(1024, 2048, 4096), 16)
    attend = by_hand if options.faulty else fused
    layers = [Attention(width, options.size(16, 2), attend) for _ in range(options.size(3, 1))]
    model = nn.Sequential(*layers, nn.Linear(width, 64, bias=False)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    batch = options.size(16384, 32) // length
    values, classes = options.normal(batch, length, width), options.choices(64, batch * length)
    for _ in options.laps():
        loss = F.cross_entropy(model(values).flatten(0, 1), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
