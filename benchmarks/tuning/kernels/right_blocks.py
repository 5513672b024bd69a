"""Rows in blocks that stay in the cache."""

import numpy as np


def norm(x, weight):
    out = np.empty_like(x)
    for first in range(0, len(x), 64):
        part = x[first : first + 64]
        out[first : first + 64] = part / np.sqrt(np.square(part).mean(1, keepdims=True) + 1e-6) * weight
    return out
