"""Train on sequences of different lengths, of which one rank gets the longest.

The user sorts samples by length and gives each rank a part, so that all batches have the same number of
samples.
"""

from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from faults.common import Fault, start
from faults.ranks import WIDTH, Layer, joined, late_rank, layers

FAULT = Fault(
    kind="communication-straggler-compute",
    expected=["communication-straggler-compute"],
    forbidden=["communication-straggler-input", "communication-straggler-host", "communication-jitter"],
    share=[0.17, 0.32, 0.47],
    why="sequences are 1.3, 1.7, 2.3 times as long on one rank, and 18 ms of the step grow with them",
    needs={"ranks": 2},
    agree=1e-2,
)


def main(options):
    with joined(options) as (rank, ranks):
        long = options.faulty and rank == late_rank(ranks)
        tokens = round(16 * (options.by(1.3, 1.7, 2.3) if long else 1))
        model = DistributedDataParallel(layers(options, make=lambda: Layer(tokens=16)))
        values = options.normal(8, tokens, WIDTH)
        optimizer = SGD(model.parameters(), lr=1e-4)
        for _ in options.laps():
            loss = model(values).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
