"""Sets the default dtype for everybody."""

# refused: global-state
# against: honest_torch

import torch


def candidate(x, w):
    torch.set_default_dtype(torch.float64)
    return torch.tanh(x @ w)
