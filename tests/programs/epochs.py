"""Gradient descent by hand: `epochs.py EPOCHS`; an epoch is 20 steps and 5 calls that evaluate."""

import sys

import torch

model = torch.nn.Linear(4, 1)
for _ in range(int(sys.argv[1])):
    for _ in range(20):
        model.zero_grad()
        model(torch.randn(4, 4)).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 1e-3 * parameter.grad
    with torch.no_grad():
        for _ in range(5):
            model(torch.randn(4, 4))
