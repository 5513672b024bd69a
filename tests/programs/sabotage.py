"""Breaks the probe from within, and trains on."""

import torch
from by_hand import SGD

import fathom.probe.kineto as kineto


def broken(self, *args, **kwargs):
    raise RuntimeError("as planned")


kineto.Kineto.prepare = broken
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = SGD(model.parameters(), lr=1e-3)
for _ in range(60):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.6f}")
