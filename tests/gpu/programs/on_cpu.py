"""Train a small model on the processor, though there is a GPU."""

import torch

model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(400):
    for _ in range(20):
        model(torch.ones(256, 256)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
