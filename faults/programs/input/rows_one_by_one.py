"""Train on rows of a table in memory, which a DataLoader fetches one by one.

The user believes that a TensorDataset hands out batches. The loader asks for each row, and stacks them again;
one index of the tensors gathers the same batch.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader, TensorDataset

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="input-sample-by-sample",
    expected=["input-sample-by-sample"],
    forbidden=["input-slow-transform", "input-storage-bound", "host-python"],
    allowed=["input-pageable-copy", "input-collate", "framework-not-compiled", "host-launch-bound"],
    severity=[2],
    share=[0.7],
    why="1,024 rows of 5 µs and their stacking come between two steps of 2 ms",
    needs={"gpu": True},
)


def gathered(x, y, batch):
    while True:
        for index in torch.randperm(len(x)).split(batch):
            yield x[index], y[index]


def loaded(x, y, batch):
    loader = DataLoader(TensorDataset(x, y), batch, shuffle=True, drop_last=True)
    while True:
        yield from loader


def main(options):
    rows, width, batch = options.size(65536, 64), options.size(256, 8), options.size(1024, 8)
    x, y = torch.randn(rows, width), torch.randint(64, (rows,))
    model = tower(width, options.size(8, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    batches = (loaded if options.faulty else gathered)(x, y, batch)
    for values, classes in options.laps(batches):
        values = values.to(options.device, options.dtype)
        loss = F.cross_entropy(model(values), classes.to(options.device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
