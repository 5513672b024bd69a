"""Returns what the allocator had left."""

# refused: unwritten-output
# against: honest_gpu

import torch


def candidate(x, w):
    return torch.empty_like(x)
