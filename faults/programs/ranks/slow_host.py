"""Train on several ranks, of which one writes statistics of every step.

The user lets only one rank log, and thinks that logging costs the others nothing.
"""

import time

from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from faults.common import Fault, start
from faults.ranks import WIDTH, joined, late_rank, layers

FAULT = Fault(
    kind="communication-straggler-host",
    expected=["communication-straggler-host"],
    forbidden=["communication-straggler-input", "communication-straggler-compute", "communication-jitter"],
    share=[0.19, 0.32, 0.48],
    why="one rank formats statistics for 6, 12, 24 ms in each step",
    needs={"ranks": 2},
    agree=1e-2,
)


def write_statistics(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        f"{seconds:.6f} {until:.6f}".split()
        time.sleep(1e-4)  # as a write does


def main(options):
    with joined(options) as (rank, ranks):
        logs = options.faulty and rank == late_rank(ranks)
        model = DistributedDataParallel(layers(options))
        values = options.normal(8, 16, WIDTH)
        optimizer = SGD(model.parameters(), lr=1e-4)
        for _ in options.laps():
            loss = model(values).square().mean()
            if logs:
                write_statistics(options.by(6, 12, 24) / 1000)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
