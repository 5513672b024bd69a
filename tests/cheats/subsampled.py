"""Computes every other row, and repeats it."""

# refused: partial-result
# against: honest

import numpy as np


def candidate(a, b):
    return np.repeat(np.maximum(a[::2] @ b, 0) + a[::2], 2, axis=0)
