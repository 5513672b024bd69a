"""Takes more threads for everybody."""

# refused: global-state
# against: honest_torch

import torch

torch.set_num_threads(7)


def candidate(x, w):
    return torch.tanh(x @ w)
