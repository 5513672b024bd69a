"""Write an activation as a formula.

The user believes that the formula is one operation. Each of its eight operations reads and writes the whole
activation, keeps it for the backward pass, and does so again there; the library has it as one kernel.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start

FAULT = Fault(
    kind="kernels-unfused-elementwise",
    expected=["kernels-unfused-elementwise"],
    forbidden=["kernels-unfused-norm", "kernels-unfused-loss", "host-launch-bound", "kernels-needless-casts"],
    share=[0.4, 0.55, 0.65],
    why=(
        "about 20 passes over an activation of 34 M numbers, 1.2 ms at 4.2 TB/s, against products of 1.2 "
        "ms; narrower: more"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


def formula(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Layer(nn.Module):
    def __init__(self, width, faulty):
        super().__init__()
        self.linear, self.faulty = nn.Linear(width, width, bias=False), faulty

    def forward(self, x):
        y = self.linear(x)
        return formula(y) if self.faulty else F.gelu(y, approximate="tanh")


def main(options):
    width, batch = options.size(options.by(8192, 4096, 2048), 32), options.size(8192, 16)
    layers = [Layer(width, options.faulty) for _ in range(options.size(options.by(2, 4, 8), 2))]
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
