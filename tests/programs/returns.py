"""Training that sums returns in a Python loop, or `tensor`: in one operation. `returns.py STEPS [tensor]`."""

import sys

import torch
from by_hand import SGD
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
optimizer = SGD(model.parameters(), lr=1e-3)
rewards = torch.rand(256, generator=torch.Generator().manual_seed(0))


def by_hand(values: list[float]) -> torch.Tensor:
    return torch.tensor([sum(values[n:]) for n in range(len(values))])


for _step in range(int(sys.argv[1])):
    tensor = "tensor" in sys.argv
    returns = rewards.flip(0).cumsum(0).flip(0) if tensor else by_hand(rewards.tolist() * 12)[:256]
    loss = (model(torch.randn(256, 128)).squeeze() - returns).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
