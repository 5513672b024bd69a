"""Train a small model on rows in memory, on the processor, with a worker process.

The user believes that workers always help. A row is ready in microseconds, but each batch from a worker comes
through a queue and shared memory, and the worker takes a core from the step.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import SGD
from torch.utils.data import DataLoader, Dataset

from faults.common import Fault, epochs, start, tower

FAULT = Fault(
    kind="input-needless-workers",
    expected=["input-needless-workers"],
    forbidden=["input-too-few-workers", "input-collate", "host-python", "host-cpu-oversubscription"],
    allowed=["framework-not-compiled"],
    share=[0.6, 0.7, 0.75],
    why="4, 6 and 8 tensors at 0.2 ms each on both sides of the queue, beside 2.5 ms without a worker",
    needs={"cores": 2},
)


class Rows(Dataset):
    """Samples of several tensors, all in memory."""

    def __init__(self, count, tensors):
        self.columns = [torch.randn(count, 64) for _ in range(tensors)]

    def __len__(self):
        return len(self.columns[0])

    def __getitem__(self, index):
        return [column[index] for column in self.columns]


def main(options):
    data = Rows(options.size(40_000, 400), options.by(4, 6, 8))
    loader = DataLoader(
        data,
        options.size(16, 4),
        num_workers=1 if options.faulty else 0,
        persistent_workers=options.faulty,
        drop_last=True,
    )
    model = tower(options.size(512, 32), 3, 64)
    optimizer = SGD(model.parameters(), lr=1e-4)
    for columns in options.laps(epochs(loader)):
        loss = F.mse_loss(model(F.pad(sum(columns), (0, options.size(448, -32)))), columns[0])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
