"""Discount rewards one number at a time, step by step and environment by environment.

The user believes that a few thousand additions take no time. Each is an operation on one number, with a
dozen calls around it, and the optimizer waits for the last one.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-element-loop",
    expected=["host-element-loop"],
    forbidden=["host-garbage-collection", "host-sync-item", "kernels-for-loop-optimizer", "host-python"],
    allowed=["host-launch-bound", "framework-not-compiled"],
    share=[0.3, 0.5, 0.7],
    why="1, 2 and 4 thousand iterations of four launches at about 5 us, beside 30 ms of products",
    needs={"gpu": True},
    agree=1e-2,
)
DECAY = 0.9


def one_by_one(rewards):
    steps, environments = rewards.shape
    returns = torch.zeros_like(rewards)
    for environment in range(environments):
        last = 0.0
        for step in reversed(range(steps)):
            last = rewards[step, environment] + DECAY * last
            returns[step, environment] = last
    return returns


def at_once(rewards):
    steps = torch.arange(len(rewards), device=rewards.device)
    weights = (DECAY ** (steps[None] - steps[:, None]).clamp(min=0)).triu()
    return weights.to(rewards.dtype) @ rewards


def main(options):
    width, steps = options.size(2048, 32), options.size(128, 32)
    environments = options.size(options.by(8, 16, 32), 2)
    model = tower(width, options.size(12, 2), 1).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    rewards = options.normal(steps, environments, dtype=torch.float32)
    states = options.normal(steps, environments, width)
    discounted = one_by_one if options.faulty else at_once
    for _ in options.laps():
        loss = F.mse_loss(model(states).squeeze(2).float(), discounted(rewards))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
