"""Allows everybody's products less precision."""

# refused: global-state
# against: honest_torch

import torch

torch.set_float32_matmul_precision("medium")


def candidate(x, w):
    return torch.tanh(x @ w)
