"""Compute running metrics over all losses so far, in Python, after every step.

The user believes that a little arithmetic does not matter. The list is long, the loop is Python's, and
nothing is launched meanwhile: the device has caught up and waits.
"""

import math

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-python",
    expected=["host-python"],
    forbidden=["host-launch-bound", "host-logging", "host-garbage-collection", "input-too-few-workers"],
    share=[0.3, 0.55, 0.75],
    why="60, 120, 240 thousand numbers at 0.1 us: 6, 12, 24 ms, of which the device covers its own 5",
    needs={"gpu": True},
    agree=1e-3,
)


class Mean:
    """An exponential mean of values: of each alone, or anew from all of them."""

    def __init__(self, history):
        self.values, self.mean = history, 0.0

    def of_all(self, value):
        self.values[-1], mean = value, 0.0
        for item in self.values:
            mean = 0.999 * mean + 0.001 * math.fabs(item)
        return mean

    def of_one(self, value):
        self.mean = 0.999 * self.mean + 0.001 * math.fabs(value)
        return self.mean


def main(options):
    width, batch = options.size(4096, 32), options.size(8192, 16)
    model = tower(width, options.size(4, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    mean = Mean([1.0] * options.size(options.by(60_000, 120_000, 240_000), 100))
    update = mean.of_all if options.faulty else mean.of_one
    for number in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        update(float(number))
    return loss


if __name__ == "__main__":
    start(main)
