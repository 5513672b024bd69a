"""Replaces NaN by zero."""

# refused: fails-on-variants
# against: honest

import numpy as np


def candidate(a, b):
    return np.nan_to_num(np.maximum(a @ b, 0) + a)
