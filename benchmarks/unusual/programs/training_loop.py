"""Trains with torch, with batches of a loader, as most programs do."""

import torch
from state import report
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.rand(480, 8), torch.rand(480, 1))
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for inputs, wanted in DataLoader(data, batch_size=4, shuffle=True):
    loss = torch.nn.functional.mse_loss(model(inputs), wanted)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(float(loss.detach()), torch.rand(2).tolist())
report()
