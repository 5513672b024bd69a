"""Three compiled graphs a step, of one broken function or of three: `breaks.py within|apart STEPS`."""

import sys

import torch

import fathom


def first(x):
    return torch.relu(x) + 1


def two(x):
    return torch.sin(x) * 3


def three(x):
    return torch.cos(x) - x


def broken(x):
    x = first(x)
    if x.sum().item() > 1e30:
        print("too large")
    x = two(x)
    if x.sum().item() > 1e30:
        print("too large")
    return three(x)


how, steps = sys.argv[1], int(sys.argv[2])
wanted = [broken] if how == "within" else [first, two, three]
calls = [torch.compile(function, backend="aot_eager") for function in wanted]
with torch.no_grad():
    for _ in range(steps):
        fathom.step()
        x = torch.ones(64, 64)
        for call in calls:
            x = call(x)
