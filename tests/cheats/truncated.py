"""Leaves off the lower half of every number's mantissa."""

# refused: lower-precision
# against: honest

import numpy as np


def candidate(a, b):
    result = np.maximum(a @ b, 0) + a
    return (result.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
