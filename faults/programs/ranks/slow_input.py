"""Train on several ranks, of which one reads its data from a slow disk.

The user looks at the mean time of all loaders, which is short. The others wait for the slow one at each
all-reduce.
"""

import time

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.utils.data import DataLoader, Dataset

from faults.common import Fault, start
from faults.ranks import WIDTH, joined, late_rank, layers

FAULT = Fault(
    kind="communication-straggler-input",
    expected=["communication-straggler-input"],
    forbidden=["communication-straggler-compute", "communication-straggler-host", "communication-jitter"],
    allowed=["input-slow-transform", "input-too-few-workers"],
    share=[0.19, 0.32, 0.48],
    why="8 samples take 6, 12, 24 ms longer to read on one rank; the step takes about 26 ms",
    needs={"ranks": 2},
    agree=1e-2,
)


class Samples(Dataset):
    def __init__(self, steps, delay_s):
        self.count, self.delay_s = 8 * steps, delay_s

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        if self.delay_s:
            time.sleep(self.delay_s)
        return torch.ones(16, WIDTH)


def main(options):
    with joined(options) as (rank, ranks):
        slow = options.faulty and rank == late_rank(ranks)
        loader = DataLoader(Samples(options.steps, options.by(6, 12, 24) / 8000 if slow else 0), 8)
        model = DistributedDataParallel(layers(options))
        optimizer = SGD(model.parameters(), lr=1e-4)
        for values in options.laps(loader):
            loss = model(values.to(options.device, options.dtype)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
