"""Multiply views that begin at an odd element.

The user believes that a slice is as good as a tensor. Sequences of which the first column is dropped begin
two bytes past a boundary in every row, so the product cannot load 16 bytes at a time and falls back to slow
kernels.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start

FAULT = Fault(
    kind="kernels-tensor-cores-idle",
    expected=["kernels-tensor-cores-idle"],
    forbidden=["kernels-tf32-off", "kernels-no-mixed-precision", "kernels-uncoalesced"],
    allowed=["numbers-odd-size"],
    severity=[2],
    share=[0.5],
    why="unaligned bfloat16 operands take kernels of an older kind, about half the rate or less",
    needs={"gpu": True},
    agree=1e-3,
)


class Layer(nn.Module):
    """Keeps its bias in the first column of the weight."""

    def __init__(self, width, faulty):
        super().__init__()
        both = torch.randn(width, width + 1) / width**0.5
        both[:, 0] = 0
        self.both = nn.Parameter(both if faulty else both[:, 1:].contiguous())
        self.first = int(faulty)

    def forward(self, x):
        weight = self.both[:, self.first :] if self.first else self.both
        return F.relu(F.linear(x, weight))


def main(options):
    width, batch = options.size(4096, 32), options.size(8192, 16)
    layers = [Layer(width, options.faulty) for _ in range(options.size(4, 2))]
    model = nn.Sequential(*layers, nn.Linear(width, 64, bias=False)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
