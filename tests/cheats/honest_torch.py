"""The honest side in torch, with gradients."""

import torch


def inputs(seed):
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(64, 64, generator=source, requires_grad=True)
    return x, torch.randn(64, 64, generator=source, requires_grad=True)


def baseline(x, w):
    return torch.tanh(x @ w)
