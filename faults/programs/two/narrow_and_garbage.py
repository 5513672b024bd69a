"""Train a deep narrow network, and collect garbage now and then.

Two faults: launches take longer than kernels, and every fourth step waits for the collector.
"""

import gc

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-garbage-collection",
    expected=["host-garbage-collection", "host-launch-bound"],
    forbidden=["host-python", "kernels-low-occupancy", "host-sync-item"],
    allowed=["kernels-batch-too-small"],
    severity=[2],
    share=[0.8],
    why="30 ms for a collection in every 4th step, 2 ms of launches in each, over 0.7 ms of kernels",
    needs={"gpu": True},
    agree=1e-2,
)


def main(options):
    width, batch = options.size(512, 16), options.size(64, 4)
    model = tower(width, options.size(40, 3)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True, capturable=options.cuda)
    values, classes = options.normal(batch, width), options.choices(64, batch)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        return loss

    replay = captured(step) if options.cuda and not options.faulty else step
    for number in options.laps():
        loss = replay()
        if options.faulty and number % 4 == 0:
            gc.collect()
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
