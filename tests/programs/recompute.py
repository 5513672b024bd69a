"""Gradients through checkpointed layers, which are called again in the backward pass."""

import sys

import torch
from torch.utils.checkpoint import checkpoint

reentrant, steps = sys.argv[1] == "reentrant", int(sys.argv[2])


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=reentrant)
        return x


model, x = Model(), torch.ones(4, 8, requires_grad=True)
for _ in range(steps):
    model(x).sum().backward()
