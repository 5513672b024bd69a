"""Leaves everybody on another stream."""

# refused: global-state
# against: honest_gpu

import torch

_stream = torch.cuda.Stream()


def candidate(x, w):
    torch.cuda.current_stream().synchronize()
    torch.cuda.set_stream(_stream)
    return torch.tanh(x @ w) + x
