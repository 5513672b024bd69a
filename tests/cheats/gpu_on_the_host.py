"""Leaves the result on the host."""

# refused: contract
# against: honest_gpu

import torch


def candidate(x, w):
    return (torch.tanh(x @ w) + x).cpu()
