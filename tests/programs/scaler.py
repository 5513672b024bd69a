"""A gradient scaler that skips every fifth step, because gradients overflowed: `scaler.py STEPS`."""

import sys

import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
skipped = 0
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    inputs = torch.randn(8, 4) * (float("inf") if step % 5 == 4 else 1.0)
    scaler.scale(model(inputs).mean()).backward()
    scaler.step(optimizer)
    scaler.update()
