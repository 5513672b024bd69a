"""The input is overwritten."""

import numpy as np


def norm(x, weight):
    x /= np.sqrt(np.square(x).mean(1, keepdims=True) + np.float32(1e-6))
    x *= weight
    return x
