"""Train on several ranks, of which a different one is interrupted in each step.

The user finds no rank that is slower than the others on average, and blames the network.
"""

import random
import time

from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from faults.common import Fault, start
from faults.ranks import WIDTH, joined, layers

FAULT = Fault(
    kind="communication-jitter",
    expected=["communication-jitter"],
    forbidden=["communication-straggler", "communication-straggler-host", "communication-straggler-compute"],
    share=[0.19, 0.32, 0.48],
    why="in each step one rank, drawn at random, is interrupted for 0 to 12, 24, 48 ms",
    needs={"ranks": 2},
    agree=1e-2,
)


def main(options):
    with joined(options) as (rank, ranks):
        model = DistributedDataParallel(layers(options))
        values, draw = options.normal(8, 16, WIDTH), random.Random(3)
        optimizer = SGD(model.parameters(), lr=1e-4)
        for _ in options.laps():
            loss = model(values).square().mean()
            interrupted, seconds = draw.randrange(ranks), draw.random() * options.by(12, 24, 48) / 1000
            if options.faulty and interrupted == rank:
                time.sleep(seconds)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
