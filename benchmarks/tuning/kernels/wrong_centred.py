"""The variance instead of the mean square."""

import numpy as np


def norm(x, weight):
    return x / np.sqrt(x.var(1, keepdims=True) + 1e-6) * weight
