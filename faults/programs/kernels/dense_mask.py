"""Give the fused attention a mask of all pairs, where a flag would do.

The user believes that the mask only decides what is seen. With one, the fastest kernels are out of the
question, half of the work is done for nothing, and the mask itself is read for every head.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Attention, Fault, start
from faults.common import fused_attention as causal

FAULT = Fault(
    kind="kernels-materialised-mask",
    expected=["kernels-materialised-mask"],
    forbidden=["kernels-math-attention", "kernels-tensor-cores-idle", "kernels-unfused-elementwise"],
    # not compiled: compiled, gradients of queries, keys and values are joined and put in order at once
    allowed=["framework-not-compiled"],
    share=[0.3, 0.5, 0.65],
    why=(
        "attention takes three times as long with a mask, and grows from a third to most of the step at "
        "2k, 4k, 8k"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


class Masked:
    def __init__(self, batch, length, like):
        seen = torch.ones(length, length, dtype=torch.bool, device=like.device).tril()
        self.mask = torch.zeros(batch, 1, length, length, device=like.device, dtype=like.dtype)
        self.mask.masked_fill_(~seen, float("-inf"))

    def __call__(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)


def main(options):
    width, length = options.size(2048, 32), options.size(options.by(2048, 4096, 8192), 16)
    batch = options.size(16384, 32) // length
    values, classes = options.normal(batch, length, width), options.choices(64, batch * length)
    attend = Masked(batch, length, values) if options.faulty else causal
    layers = [Attention(width, options.size(16, 2), attend) for _ in range(options.size(3, 1))]
    model = nn.Sequential(*layers, nn.Linear(width, 64, bias=False)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in options.laps():
        loss = F.cross_entropy(model(values).flatten(0, 1), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
