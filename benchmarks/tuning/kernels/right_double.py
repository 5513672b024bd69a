"""In double precision inside."""

import numpy as np


def norm(x, weight):
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt((wide * wide).mean(1, keepdims=True) + 1e-6)
    return (wide * scale * weight).astype(np.float32)
