"""Gradient descent without torch.optim, whose optimizers import Dynamo: that takes as long again as torch.

As a program it is a plain training loop whose steps are calls of its model: `by_hand.py STEPS`.
"""

import sys

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
    for _ in range(int(sys.argv[1])):
        loss = model(torch.randn(16, 32)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
