"""The honest side on a CUDA device."""

import torch

SIZE = 2048


def inputs(seed):
    source = torch.Generator("cuda").manual_seed(seed)
    return tuple(torch.randn(SIZE, SIZE, generator=source, device="cuda") for _ in range(2))


def baseline(x, w):
    return torch.tanh(x @ w) + x
