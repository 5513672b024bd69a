"""Normalise activations with mean, variance and a formula.

The user believes that the library's layer norm does the same. It does, in one pass; written out it takes
seven, and twice as many backwards.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start

FAULT = Fault(
    kind="kernels-unfused-norm",
    expected=["kernels-unfused-norm"],
    forbidden=["kernels-unfused-loss", "kernels-needless-casts", "host-launch-bound"],
    # not compiled: compiled, the layer norm's gradients are one pass, not three kernels
    allowed=["framework-not-compiled", "kernels-unfused-elementwise"],
    share=[0.35, 0.5, 0.65],
    why=(
        "about 20 passes over 34 M numbers, some in float32, are 1.3 ms beside 1.2 ms of products; "
        "narrower: more"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


class Norm(nn.Module):
    def __init__(self, width, faulty):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.faulty = faulty

    def forward(self, x):
        if not self.faulty:
            return F.layer_norm(x, x.shape[-1:], self.scale, self.shift)
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * self.scale + self.shift


def main(options):
    width, batch = options.size(options.by(8192, 4096, 2048), 32), options.size(8192, 16)
    depth = options.size(options.by(2, 4, 8), 2)
    layers = [
        item
        for _ in range(depth)
        for item in (nn.Linear(width, width, bias=False), Norm(width, options.faulty))
    ]
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
