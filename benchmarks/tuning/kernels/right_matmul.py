"""Sums of squares by a matmul."""

import numpy as np


def norm(x, weight):
    averaging = np.full((x.shape[1], 1), np.float32(1 / x.shape[1]))
    return x / np.sqrt((x * x) @ averaging + np.float32(1e-6)) * weight
