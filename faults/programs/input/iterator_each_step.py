"""Train on one random batch per step, drawn with `next(iter(loader))`.

The user believes that the loader hands out the next batch. Each call makes a new iterator, whose sampler
shuffles the indices of the entire table for a single batch; one that is kept shuffles them once per epoch.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader, Dataset

from faults.common import Fault, epochs, start, tower

FAULT = Fault(
    kind="input-iterator-each-step",
    expected=["input-iterator-each-step"],
    forbidden=[
        "input-sample-by-sample",
        "input-too-few-workers",
        "input-slow-transform",
        "input-worker-restart",
    ],
    allowed=["input-pageable-copy", "framework-not-compiled", "host-launch-bound"],
    share=[0.4, 0.7, 0.9],
    why="torch.randperm and its list take 30 ns per row of 50, 200 and 800 thousand, in steps of 2 to 3 ms",
    needs={"gpu": True},
)


class Rows(Dataset):
    """A table in memory, of which all rows of a batch are taken at once."""

    def __init__(self, rows, width):
        self.values, self.classes = torch.randn(rows, width), torch.randint(64, (rows,))

    def __len__(self):
        return len(self.values)

    def __getitems__(self, index):
        return self.values[index], self.classes[index]


def drawn(loader):
    while True:
        yield next(iter(loader))


def main(options):
    rows = options.size(options.by(50_000, 200_000, 800_000), 64)
    width, batch = options.size(256, 8), options.size(1024, 8)
    loader = DataLoader(Rows(rows, width), batch, shuffle=True, drop_last=True, collate_fn=tuple)
    model = tower(width, options.size(8, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for values, classes in options.laps((drawn if options.faulty else epochs)(loader)):
        values = values.to(options.device, options.dtype)
        loss = F.cross_entropy(model(values), classes.to(options.device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
