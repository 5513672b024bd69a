"""Train small layers with the whole step in a CUDA graph."""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind=None,
    severity=[2],
    allowed=["kernels-batch-too-small"],
    why="one launch a step; kernels follow each other without a gap",
    needs={"gpu": True},
)


def main(options):
    width, batch = options.size(1024, 16), options.size(2048, 4)
    model = tower(width, options.size(24, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True, capturable=options.cuda)
    values, classes = options.normal(batch, width), options.choices(64, batch)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        return loss

    if not options.cuda:
        return [step() for _ in options.laps()][-1]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for _ in options.laps():
        graph.replay()
    return loss


if __name__ == "__main__":
    start(main)
