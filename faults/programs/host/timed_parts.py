"""Time the parts of a step with `torch.cuda.synchronize()` before and after each.

The user has left measuring code in the training loop. Every wait empties the device's queue, and the device
idles until the host has launched again.
"""

import time

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-sync-explicit",
    expected=["host-sync-explicit"],
    forbidden=["host-sync-item", "host-launch-bound", "host-python"],
    share=[0.06, 0.12, 0.15],
    why=(
        "a wait costs about 30 us until the device works again, one before each of 25, 49, 97 parts of a "
        "step of 10 to 18 ms"
    ),
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    width, depth = options.size(options.by(2048, 1536, 1280), 32), options.size(options.by(12, 24, 48), 3)
    batch = options.size(16384, 16)
    model = tower(width, depth).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    spent = {}

    def lap(name, since):
        if options.faulty:
            if options.cuda:
                torch.cuda.synchronize()
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - since
        return time.perf_counter()

    for _ in options.laps():
        x, since = values, lap("between", time.perf_counter())
        for place, layer in enumerate(model):
            x = layer(x)
            since = lap(f"layer {place}", since)
        loss = F.cross_entropy(x, classes)
        loss.backward()
        since = lap("backward", since)
        optimizer.step()
        optimizer.zero_grad()
        lap("optimizer", since)
    return loss


if __name__ == "__main__":
    start(main)
