"""Gradient descent without torch.optim, whose optimizers import Dynamo: that takes as long again as torch.

As a program it is a plain training loop whose steps are calls of its model: `by_hand.py STEPS [SECONDS]`.
It takes at least that many steps, and goes on for at least that many seconds.
"""

import itertools
import sys
import time

import torch


class SGD:
    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr

    def step(self):
        with torch.no_grad():
            for parameter in self.parameters:
                parameter -= self.lr * parameter.grad

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None


if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
    optimizer = SGD(model.parameters(), lr=0.01)
    steps, seconds = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0
    until = time.monotonic() + seconds
    for step in itertools.count():
        if step >= steps and time.monotonic() >= until:
            break
        loss = model(torch.randn(16, 32)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
