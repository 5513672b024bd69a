"""Train on several ranks, of which one is slower in its backward pass.

The all-reduce runs inside the backward pass, so the user sees backward passes of the same length on all
ranks.
"""

from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from faults.common import Fault, start
from faults.ranks import WIDTH, Layer, joined, late_rank, layers

FAULT = Fault(
    kind="communication-straggler-compute",
    expected=["communication-straggler-compute"],
    forbidden=["communication-straggler-input", "communication-straggler-host", "communication-jitter"],
    share=[0.19, 0.32, 0.48],
    why="the backward pass of 12 ms takes 6, 12, 24 ms longer on one rank",
    needs={"ranks": 2},
    agree=1e-2,
)


def main(options):
    with joined(options) as (rank, ranks):
        slow = options.faulty and rank == late_rank(ranks)
        longer = options.by(1.5, 2, 3) if slow else 1
        model = DistributedDataParallel(layers(options, make=lambda: Layer(backward=longer)))
        values = options.normal(8, 16, WIDTH)
        optimizer = SGD(model.parameters(), lr=1e-4)
        for _ in options.laps():
            loss = model(values).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
