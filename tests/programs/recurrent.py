"""Gradient descent by hand on a recurrent model, whose first dimension is time: `recurrent.py STEPS`."""

import sys

import torch

model = torch.nn.GRU(4, 4)
for _ in range(int(sys.argv[1])):
    model.zero_grad()
    model(torch.randn(7, 2, 4))[0].square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 1e-3 * parameter.grad
