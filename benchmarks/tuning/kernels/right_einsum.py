"""Sums of squares by einsum."""

import numpy as np


def norm(x, weight):
    squares = np.einsum("ij,ij->i", x, x) / x.shape[1]
    return x / np.sqrt(squares + 1e-6)[:, None] * weight
