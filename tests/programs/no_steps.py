"""Uses torch, and repeats nothing."""

import torch

print(torch.ones(3).sum().item())
