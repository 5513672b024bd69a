"""Write a transformer's attention and its norms by hand.

Two faults: scores of all pairs go through memory, and each norm passes over the activations seven times.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Attention, Fault, fused_attention, start

FAULT = Fault(
    kind="kernels-math-attention",
    expected=["kernels-math-attention", "kernels-unfused-norm"],
    forbidden=["kernels-materialised-mask", "host-launch-bound", "kernels-tensor-cores-idle"],
    # not compiled: compiled, gradients of queries, keys and values are joined and put in order at once
    allowed=["framework-not-compiled", "kernels-unfused-elementwise"],
    severity=[2],
    share=[0.7],
    why=(
        "at 2k tokens attention by hand takes 3 ms a layer instead of 0.5, the norm 0.7 ms instead of "
        "0.1, products 0.6"
    ),
    needs={"gpu": True},
    agree=2e-2,
)


def by_hand(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ v


class Norm(nn.Module):
    def __init__(self, faulty):
        super().__init__()
        self.faulty = faulty

    def forward(self, x):
        if not self.faulty:
            return F.layer_norm(x, x.shape[-1:])
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)


def main(options):
    width, length, batch = options.size(2048, 32), options.size(2048, 16), options.size(8, 2)
    attend, depth = by_hand if options.faulty else fused_attention, options.size(3, 1)
    layers = [(Norm(options.faulty), Attention(width, options.size(16, 2), attend)) for _ in range(depth)]
    model = nn.Sequential(*(item for pair in layers for item in pair), nn.Linear(width, 64, bias=False))
    model.to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, length, width), options.choices(64, batch * length)
    for _ in options.laps():
        loss = F.cross_entropy(model(values).flatten(0, 1), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
