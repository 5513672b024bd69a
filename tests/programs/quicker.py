"""Steps that become quicker for good after a while: everything has to be recorded again."""

import time

import torch
from by_hand import SGD

model = torch.nn.Linear(8, 8)
optimizer = SGD(model.parameters(), lr=1e-3)
for step in range(400):
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    time.sleep(0.012 if step < 60 else 0.002)
