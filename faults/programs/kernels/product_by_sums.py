"""Score all pairs by multiplying and summing.

The user believes that the broadcast expression is as good as a product, which it equals. Its intermediate
result is as large as the number of multiplications, goes through memory, and never meets a tensor core.
"""

import torch
from torch import nn

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-tensor-cores-idle",
    expected=["kernels-tensor-cores-idle"],
    forbidden=["kernels-tf32-off", "host-launch-bound", "kernels-batch-too-small"],
    allowed=["kernels-unfused-elementwise", "kernels-unfused-loss"],
    share=[0.5, 0.7, 0.85],
    why=(
        "256, 512, 1024 pairs a row of 512 numbers: 1, 2, 4 GB written and read, 0.6 ms a GB, against 20 "
        "us as a product"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


class Scores(nn.Module):
    def __init__(self, body, faulty):
        super().__init__()
        self.body, self.faulty = body, faulty

    def forward(self, x, others):
        features = self.body(x)
        if self.faulty:
            return (features[:, None, :] * others[None, :, :]).sum(-1)
        return features @ others.T


@torch.no_grad()
def main(options):
    width, batch = options.size(2048, 16), options.size(4096, 8)
    body = tower(width, options.size(6, 2), options.size(512, 8))
    model = Scores(body, options.faulty).to(options.device, options.dtype)
    others = options.normal(options.size(options.by(256, 512, 1024), 4), options.size(512, 8))
    values = options.normal(batch, width)
    for _ in options.laps():
        scores = model(values, others)
    return scores.float().square().mean()


if __name__ == "__main__":
    start(main)
