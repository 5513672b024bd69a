"""Train a head on a backbone that should stay as it is.

The user gives only the head to the optimizer and believes the backbone frozen. Its gradients are computed all
the same, in every step, and thrown away; `requires_grad_(False)` or `no_grad` spares them.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-needless-backward",
    expected=["kernels-needless-backward"],
    forbidden=["kernels-needless-recomputation", "kernels-gradient-memset", "host-launch-bound"],
    severity=[2],
    share=[0.6],
    why="the backward pass of the backbone is two thirds of all products",
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    width, batch = options.size(4096, 32), options.size(8192, 16)
    backbone = tower(width, options.size(6, 2), width).to(options.device, options.dtype)
    head = tower(width, 1).to(options.device, options.dtype)
    optimizer = AdamW(head.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    for _ in options.laps():
        with torch.set_grad_enabled(options.faulty):
            features = backbone(values)
        loss = F.cross_entropy(head(features), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        backbone.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
