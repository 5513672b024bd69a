"""Starts the workers of a loader anew for every few batches, as a loader without persistent workers does."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

epochs, batches = int(sys.argv[1]), int(sys.argv[2])
data = TensorDataset(torch.randn(batches, 8))
loader = DataLoader(data, batch_size=1, num_workers=1, multiprocessing_context="fork")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(epochs):
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
