"""Training that creates its optimizer anew: `reopened.py STEPS EVERY`, every so many steps."""

import sys

import torch

model = torch.nn.Linear(4, 1)
for step in range(int(sys.argv[1])):
    if step % int(sys.argv[2]) == 0:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)  # it keeps the optimizer alive in a circle
    optimizer.zero_grad()
    model(torch.randn(4, 4)).square().mean().backward()
    optimizer.step()
