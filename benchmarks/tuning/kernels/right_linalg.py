"""By the norm of numpy.linalg."""

import numpy as np


def norm(x, weight):
    size = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.sqrt(size * size / x.shape[1] + 1e-6) * weight
