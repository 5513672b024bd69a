"""Decode with int8 weights that become bfloat16 matrices for each product.

The user believes that int8 weights halve the bytes of a memory-bound decode. The conversion and the scaling
each write all weights as bfloat16, and the product reads them after that.
"""

import torch
from torch import nn

from faults.common import Fault, start

FAULT = Fault(
    kind="kernels-dequantised-weights",
    expected=["kernels-dequantised-weights"],
    forbidden=["kernels-needless-casts", "host-launch-bound", "kernels-transposes"],
    # torch.compile would join conversion and scaling
    parts=["framework-not-compiled", "kernels-unfused-elementwise"],
    allowed=["kernels-weight-bound-decode", "kernels-batch-too-small"],
    share=[0.75, 0.78, 0.78],
    why="per weight 1 + 2 bytes of the conversion and 2 + 2 of the scaling, beside 2 bytes of the product",
    needs={"gpu": True},
    agree=5e-2,
)


class Linear(nn.Module):
    def __init__(self, weight, quantised):
        super().__init__()
        scale = weight.abs().amax(1, keepdim=True) / 127
        stored = (weight / scale).round().to(torch.int8) if quantised else weight
        self.register_buffer("weight", stored)
        self.register_buffer("scale", scale)

    def forward(self, x):
        if self.weight.dtype == torch.int8:
            return nn.functional.linear(x, self.weight.to(x.dtype) * self.scale)
        return nn.functional.linear(x, self.weight)


@torch.no_grad()
def main(options):
    width, count = options.size(8192, 32), options.size(options.by(4, 8, 16), 2)
    weights = (options.normal(width, width) / width**0.5 for _ in range(count))
    model = nn.Sequential(*(Linear(weight, options.faulty) for weight in weights))
    x = options.normal(8, width)
    for _ in options.laps():
        y = model(x)
    return y.float().square().mean()


if __name__ == "__main__":
    start(main)
