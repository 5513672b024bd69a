"""The mean square of every fourth column."""

import numpy as np


def norm(x, weight):
    return x / np.sqrt(np.square(x[:, ::4]).mean(1, keepdims=True) + 1e-6) * weight
