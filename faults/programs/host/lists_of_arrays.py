"""Train a value network on transitions that are drawn from a list of NumPy arrays.

The user believes that `torch.tensor` copies memory. Of a list of arrays, it reads each number as a Python
object; `numpy.array` joins the list to one array first.
"""

import random

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-python",
    expected=["host-python"],
    forbidden=["input-too-few-workers", "host-blocked", "kernels-batch-too-small"],
    allowed=["host-launch-bound", "input-pageable-copy", "framework-not-compiled"],
    share=[0.55, 0.7, 0.85],
    why=(
        "a number takes 0.05 to 0.07 µs: 65,536, 131,072 and 262,144 of them 4, 8 and 16 ms beside a step of "
        "3 ms"
    ),
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    width, count = options.size(512, 8), options.by(128, 256, 512)
    generator = np.random.default_rng(0)
    memory = list(generator.standard_normal((options.size(5000, 600), width), dtype=np.float32))
    chosen = random.Random(0)
    model = tower(width, options.size(8, 2), classes=4).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in options.laps():
        states = chosen.sample(memory, count)
        states = torch.tensor(states if options.faulty else np.array(states))
        values = model(states.to(options.device, options.dtype))
        loss = F.mse_loss(values, torch.zeros_like(values))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
