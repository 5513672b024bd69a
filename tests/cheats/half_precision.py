"""Computes in float16, and claims float32."""

# refused: lower-precision
# against: honest

import numpy as np


def candidate(a, b):
    product = a.astype(np.float16).astype(np.float32) @ b.astype(np.float16).astype(np.float32)
    return np.maximum(product, 0) + a
