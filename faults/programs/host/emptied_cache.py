"""Call `torch.cuda.empty_cache()` in every step, "to save memory".

The user believes that it lowers the peak. It gives back what the next step asks for again, with calls of the
driver that wait for the device both ways.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-empty-cache",
    expected=["host-empty-cache"],
    forbidden=["host-cuda-malloc", "host-allocator-retries", "host-fragmentation", "host-launch-bound"],
    share=[0.2, 0.35, 0.5],
    why="freeing and taking 10 to 30 segments costs about 4 ms; once in 4, 2, 1 steps of 5 ms",
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    width, batch, every = options.size(4096, 32), options.size(8192, 16), options.by(4, 2, 1)
    model = tower(width, options.size(4, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    for number in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if options.faulty and number % every == 0:
            torch.cuda.empty_cache()
    return loss


if __name__ == "__main__":
    start(main)
