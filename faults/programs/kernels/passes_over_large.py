"""Apply several operations to an array that is larger than the cache, each to all of it.

The user believes that the order does not matter. By the time an operation has reached the end, the beginning
has left the 50 MB of cache, so the next reads it from memory; piece by piece, most of it would still be
there.
"""

import torch
from torch import nn

from faults.common import Fault, start

FAULT = Fault(
    kind="kernels-l2-thrash",
    expected=["kernels-l2-thrash"],
    forbidden=["kernels-uncoalesced", "kernels-low-occupancy", "kernels-transposes"],
    # not compiled: compiled, all passes over a piece are one kernel
    allowed=["framework-not-compiled", "kernels-unfused-elementwise"],
    share=[0.15, 0.2, 0.22],
    why=(
        "6, 12, 24 passes over 512 MB at 4.2 TB/s; pieces of 32 MB stay in L2 but for the first pass, "
        "which gains about a fifth"
    ),
    needs={"gpu": True},
    agree=1e-4,
)


class Chain(nn.Module):
    def __init__(self, pieces, passes):
        super().__init__()
        self.pieces, self.passes = pieces, passes

    def forward(self, x):
        for piece in x.chunk(self.pieces):
            for _ in range(self.passes):
                piece.mul_(0.9).add_(0.1)
        return x


@torch.no_grad()
def main(options):
    count = options.size(128 << 20, 1 << 12)
    model = Chain(1 if options.faulty else options.size(16, 4), options.by(3, 6, 12))
    x = options.normal(count, dtype=torch.float32)
    for _ in options.laps():
        x = model(x)
    return x.square().mean()


if __name__ == "__main__":
    start(main)
