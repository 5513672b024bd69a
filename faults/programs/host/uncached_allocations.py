"""Train with the caching allocator switched off, as a search for a memory fault left it.

The user believes that the variable only helps debugging. Every tensor is allocated and freed by the driver,
which waits for the device each time.
"""

import os

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-cuda-malloc",
    expected=["host-cuda-malloc"],
    forbidden=["host-allocator-retries", "host-empty-cache", "host-launch-bound", "host-sync-explicit"],
    share=[0.3, 0.5, 0.7],
    why="a tensor costs about 0.15 ms for cudaMalloc and cudaFree, of which 30, 60, 120 are made in a step",
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    if options.faulty:
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # read at the first allocation
    depth = options.size(options.by(6, 12, 24), 3)
    width, batch = options.size(options.by(2048, 2048, 1536), 32), options.size(8192, 16)
    model = tower(width, depth).to(options.device, options.dtype)
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
