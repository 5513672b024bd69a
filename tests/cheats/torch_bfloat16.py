"""Multiplies in bfloat16, and claims float32."""

# refused: lower-precision
# against: honest_torch

import torch


def candidate(x, w):
    return torch.tanh((x.bfloat16() @ w.bfloat16()).float())
