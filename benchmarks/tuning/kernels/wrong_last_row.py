"""The last row is left out."""

import numpy as np


def norm(x, weight):
    out = np.zeros_like(x)
    part = x[:-1]
    out[:-1] = part / np.sqrt(np.square(part).mean(1, keepdims=True) + 1e-6) * weight
    return out
