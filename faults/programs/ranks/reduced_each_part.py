"""Accumulate gradients over several micro-batches on several ranks without `no_sync`.

The user believes that gradients are reduced once per step of the optimizer.
"""

from contextlib import nullcontext

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.utils.data import DataLoader

from faults.common import Fault, start
from faults.ranks import WIDTH, joined, layers

FAULT = Fault(
    kind="communication-repeated-in-accumulation",
    expected=["communication-repeated-in-accumulation"],
    forbidden=["communication-small-messages", "communication-straggler", "communication-jitter"],
    share=[0.12, 0.19, 0.22],
    why=(
        "of 2, 4, 8 micro-steps all but one reduce 4 MB for nothing, which takes about 8 ms beside 20 "
        "ms of compute"
    ),
    needs={"ranks": 2},
    agree=1e-2,
)


class Shifted(nn.Module):
    """Its large table is used first, so that its gradient is ready last."""

    def __init__(self, options):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(1 << 20, device=options.device, dtype=options.dtype))
        self.layers = layers(options)

    def forward(self, values):
        return self.layers(values + self.table[:WIDTH])


def main(options):
    with joined(options):
        model, parts = DistributedDataParallel(Shifted(options)), options.by(2, 4, 8)
        samples = [(torch.ones(16, WIDTH),)] * 8 * parts * options.steps
        batches = iter(DataLoader(samples, 8))
        optimizer = SGD(model.parameters(), lr=1e-4)
        for _ in options.laps():
            for part in range(parts):
                last = part == parts - 1
                with nullcontext() if options.faulty or last else model.no_sync():
                    values = next(batches)[0].to(options.device, options.dtype)
                    loss = model(values).square().mean() / parts
                    loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
