"""Computes nothing."""

# refused: partial-result
# against: honest

import numpy as np


def candidate(a, b):
    return np.zeros((96, 96), np.float32)
