"""Count how often each class comes, with `index_add_` into a handful of rows.

The user believes that scattering is as fast as gathering. Thousands of rows are added to the same few places
one after the other; as a product with one-hot labels it is a matrix product.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-atomics",
    expected=["kernels-atomics"],
    forbidden=["kernels-uncoalesced", "host-launch-bound", "kernels-tensor-cores-idle"],
    share=[0.3, 0.5, 0.7],
    why=(
        "34 M additions to 64, 16, 4 rows of 1,024 numbers: the fewer the rows, the longer each place's queue"
    ),
    needs={"gpu": True},
    agree=2e-2,
)


class Means(nn.Module):
    def __init__(self, body, rows, faulty):
        super().__init__()
        self.body, self.rows, self.faulty = body, rows, faulty

    def forward(self, x, classes):
        features = self.body(x)
        if self.faulty:
            sums = torch.zeros(self.rows, features.shape[1], device=x.device)
            return sums.index_add_(0, classes, features.float())
        return F.one_hot(classes, self.rows).to(x.dtype).T @ features


@torch.no_grad()
def main(options):
    width, batch, rows = options.size(1024, 32), options.size(32768, 64), options.by(64, 16, 4)
    body = tower(width, options.size(4, 2), width)
    model = Means(body, rows, options.faulty).to(options.device, options.dtype)
    values, classes = options.normal(batch, width), options.choices(rows, batch)
    for _ in options.laps():
        sums = model(values, classes)
    return (sums.float() / batch).square().mean()


if __name__ == "__main__":
    start(main)
