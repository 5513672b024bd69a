"""Into one buffer."""

import numpy as np


def norm(x, weight):
    out = np.square(x)
    scale = np.sqrt(out.mean(1, keepdims=True) + np.float32(1e-6))
    np.divide(x, scale, out=out)
    np.multiply(out, weight, out=out)
    return out
