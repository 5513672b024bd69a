"""Train on sequences that grow longer from step to step.

The user believes that the allocator keeps what it has. No block that it kept is large enough for the next,
longer step, so every step asks the driver for new ones; a first pass at the full length leaves blocks that
fit all.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-cuda-malloc",
    expected=["host-cuda-malloc"],
    forbidden=["host-empty-cache", "host-launch-bound", "host-recompilation"],
    allowed=["host-fragmentation", "numbers-odd-size"],
    share=[0.1, 0.2, 0.3],
    why=(
        "the largest tensors of a step grow by 2 MB, so 6, 11, 20 of them are cudaMalloc'ed at about 0.1 ms "
        "by a host that is no quicker than the device"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


def main(options):
    width, depth = options.size(1024, 32), options.size(options.by(4, 8, 16), 2)
    model = tower(width, depth).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    step, least = options.size(1024, 4), options.size(4096, 8)

    def forward(length):
        values = torch.ones(length, width, device=options.device, dtype=options.dtype)
        classes = torch.zeros(length, device=options.device, dtype=torch.long)
        return F.cross_entropy(model(values), classes)

    if not options.faulty:
        forward(least + step * options.steps).backward()
        optimizer.zero_grad()
    for number in options.laps():
        loss = forward(least + step * number)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
