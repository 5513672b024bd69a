"""Update parameters one by one.

The user believes that the optimizer is a small part of the step. With `foreach=False` it launches a dozen
kernels for each parameter, each too small for the device; fused, it is a few launches in all.
"""

from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-for-loop-optimizer",
    expected=["kernels-for-loop-optimizer"],
    forbidden=["kernels-unfused-optimizer", "host-python", "host-sync-item", "kernels-unfused-elementwise"],
    allowed=["host-launch-bound"],
    share=[0.2, 0.4, 0.55],
    why="a parameter costs about 12 launches of 6 us: 50, 100, 200 of them in a step of 10 ms",
    needs={"gpu": True},
    agree=1e-3,
)


class Scaled(nn.Module):
    """Wide layers with several small parameters each, as norms and biases are."""

    def __init__(self, width, depth, small):
        super().__init__()
        self.body = tower(width, depth)
        self.scales = nn.ParameterList(
            nn.Parameter(self.body[0].weight.new_ones(width)) for _ in range(small)
        )

    def forward(self, x):
        return self.body(x * sum(self.scales) / len(self.scales))


def main(options):
    width, batch = options.size(4096, 32), options.size(8192, 16)
    model = Scaled(width, options.size(7, 2), options.size(options.by(50, 100, 200), 4))
    model.to(options.device, options.dtype)
    how = {"foreach": False} if options.faulty else {"fused": True}
    optimizer = AdamW(model.parameters(), lr=1e-5, **how)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
