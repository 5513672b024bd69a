"""The honest side: what every adversarial candidate of this folder is proven against."""

import numpy as np

SIZE = 96


def inputs(seed):
    random = np.random.default_rng(seed)
    return random.standard_normal((SIZE, SIZE), np.float32), random.standard_normal((SIZE, SIZE), np.float32)


def baseline(a, b):
    return np.maximum(a @ b, 0) + a
