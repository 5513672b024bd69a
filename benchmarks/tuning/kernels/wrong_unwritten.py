"""Nothing is computed."""

import numpy as np


def norm(x, weight):
    return np.empty_like(x)
