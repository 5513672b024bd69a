"""Train on tables with as many columns as there happen to be.

The user believes that any number of features will do. Rows of 2,047 bfloat16 values begin at odd addresses;
with one column of zeros more they are aligned.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="numbers-odd-size",
    expected=["numbers-odd-size"],
    forbidden=["kernels-tf32-off", "kernels-batch-too-small", "numbers-tile-size"],
    allowed=["kernels-tensor-cores-idle"],
    share=[0.1, 0.2, 0.35],
    why="the first of 8, 4, 2 layers takes about twice as long, forwards and for its weights",
    needs={"gpu": True},
)


def main(options):
    width, batch = options.size(4096, 32), options.size(8192, 16)
    columns = options.size(4095, 31)
    values = options.normal(batch, columns)
    if not options.faulty:
        values = F.pad(values, (0, 1))
    first = torch.nn.Linear(values.shape[1], width, bias=False)
    body = tower(width, options.size(options.by(7, 3, 1), 1))
    model = torch.nn.Sequential(first, *body).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    classes = options.choices(64, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
