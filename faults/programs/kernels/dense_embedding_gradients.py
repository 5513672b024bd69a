"""Train a recommender whose large tables have dense gradients.

The user believes that an embedding only touches the rows that a batch looks up. Its gradient is as large as
the table: each step fills it with zeros, and Adam reads and writes all rows of the table and of both moments.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import Adam, SparseAdam

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-dense-embedding-gradient",
    expected=["kernels-dense-embedding-gradient"],
    forbidden=["kernels-gradient-memset", "kernels-unfused-optimizer"],
    allowed=["host-launch-bound", "framework-not-compiled", "kernels-no-mixed-precision", "kernels-tf32-off"],
    share=[0.55, 0.75, 0.85],
    why="8 passes over both tables: 16, 33, 66 GB a step for 4, 8, 16 M rows, 4 to 15 ms; others take 2",
    needs={"gpu": True},
)


class Clicks(nn.Module):
    def __init__(self, rows: int, width: int, sparse: bool) -> None:
        super().__init__()
        self.users, self.items = (nn.Embedding(rows, width, sparse=sparse) for _ in range(2))
        self.head = tower(2 * width, 2)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat((self.users(users), self.items(items)), dim=1))


def optimizers(model: Clicks, sparse: bool) -> list[torch.optim.Optimizer]:
    if not sparse:
        return [Adam(model.parameters(), lr=1e-4, fused=True)]
    tables = [*model.users.parameters(), *model.items.parameters()]
    return [SparseAdam(tables, lr=1e-4), Adam(model.head.parameters(), lr=1e-4, fused=True)]


def main(options):
    rows, width = options.size(options.by(4_000_000, 8_000_000, 16_000_000), 20_000), 64
    batch = options.size(4096, 64)
    model = Clicks(rows, width, sparse=not options.faulty).to(options.device)
    steppers = optimizers(model, sparse=not options.faulty)
    classes = options.choices(64, batch)
    for _ in options.laps():
        users, items = options.choices(rows, batch), options.choices(rows, batch)
        loss = F.cross_entropy(model(users, items), classes)
        loss.backward()
        for optimizer in steppers:
            optimizer.step()
            optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
