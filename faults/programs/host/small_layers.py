"""Train a deep network of narrow layers on small batches.

The user believes that a small model is a fast one. Each kernel is over before the host has launched the next,
so the step takes as long as Python and the dispatcher need; a CUDA graph launches all of it at once.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-launch-bound",
    expected=["host-launch-bound"],
    forbidden=["kernels-low-occupancy", "host-sync-item", "host-python", "kernels-unfused-optimizer"],
    # torch.compile is one way to launch less, and saves a part of what a graph does
    parts=["framework-not-compiled"],
    allowed=["kernels-batch-too-small"],
    share=[0.3, 0.5, 0.6],
    why=(
        "about 180 launches at 8 to 12 us of host time, against kernels of 6, 4, 3 us that a graph runs "
        "back to back"
    ),
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    width, batch, depth = (
        options.size(options.by(1024, 512, 256), 16),
        options.size(64, 4),
        options.size(40, 3),
    )
    model = tower(width, depth).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True, capturable=options.cuda)
    values, classes = options.normal(batch, width), options.choices(64, batch)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        return loss

    if options.cuda and not options.faulty:
        step = captured(step)
    for _ in options.laps():
        loss = step()
    return loss


def captured(step):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss

    return replay


if __name__ == "__main__":
    start(main)
