"""Apply many small layers to their shares of the batch, one after the other.

The user believes that the device runs them side by side. Each product has a few tiles and the chip places for
a hundred; one batched product fills it.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-serial-small-products",
    expected=["kernels-serial-small-products"],
    forbidden=["kernels-low-occupancy", "host-sync-nonzero", "host-python"],
    # not compiled: launches bound either form, and compiled code has fewer
    allowed=["framework-not-compiled", "host-launch-bound", "kernels-batch-too-small"],
    share=[0.3, 0.5, 0.65],
    why=(
        "32, 64, 128 products of 128 rows and 512 columns, 8 us each and three a step, where a batched "
        "one takes 40 us"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


class Experts(nn.Module):
    def __init__(self, count, width, faulty):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(count, width, width) / width**0.5)
        self.faulty = faulty

    def forward(self, x):
        parts = x.view(len(self.weight), -1, x.shape[-1])
        if self.faulty:
            return torch.cat([part @ weight for part, weight in zip(parts, self.weight, strict=True)])
        return torch.bmm(parts, self.weight).flatten(0, 1)


def main(options):
    width, count = options.size(512, 16), options.size(options.by(32, 64, 128), 4)
    batch = count * options.size(128, 4)
    model = nn.Sequential(Experts(count, width, options.faulty), tower(width, options.size(8, 1)))
    model.to(options.device, options.dtype)
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
