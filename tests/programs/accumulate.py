"""Gradient accumulation: `accumulate.py STEPS BATCHES_A_STEP`."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

steps, batches = int(sys.argv[1]), int(sys.argv[2])
loader = DataLoader(TensorDataset(torch.randn(steps * batches * 2, 4)), 2)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for number, (inputs,) in enumerate(loader, start=1):
    model(inputs).square().mean().backward()
    if number % batches == 0:
        optimizer.step()
        optimizer.zero_grad()
