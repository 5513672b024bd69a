"""Scale by the weight first."""

import numpy as np


def norm(x, weight):
    return (x * weight) / np.sqrt(np.square(x).mean(1, keepdims=True) + 1e-6)
