"""A compiled function, and its end: `given_up.py loop|between|limit|none|elsewhere|eager STEPS`."""

import sys

import torch

import fathom

LAYERS = [torch.ones(8, 8) for _ in range(6)]


def looping(x):
    for layer in LAYERS:
        x = torch.relu(x @ layer)
        if x.abs().max().item() > 1e30:
            print("too large")
    return x


def between(x):
    x = torch.relu(x @ LAYERS[0])
    if x.abs().max().item() > 1e30:
        print("too large")
    return x @ LAYERS[1]


class Counting(torch.nn.Module):
    """Dynamo compiles each count anew, until it has too many versions."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.relu(x @ LAYERS[0]) * self.calls


def caller(x):
    for layer in LAYERS:
        x = torch.relu(x @ layer)
    return x


how, steps = sys.argv[1], int(sys.argv[2])
called = {"loop": looping, "between": between, "limit": Counting()}.get(how, caller)
call = called if how in ("elsewhere", "eager") else torch.compile(called, backend="eager")
with torch.no_grad():
    if how == "elsewhere":  # the steps do not run the frame that breaks
        torch.compile(looping, backend="eager")(torch.zeros(4, 8))
    for _ in range(steps):
        fathom.step()
        call(torch.zeros(4, 8))
