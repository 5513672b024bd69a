"""The honest side: what every adversarial candidate of this folder is proven against."""

import numpy as np

SIZE = 96


def inputs(seed):
    random = np.random.default_rng(seed)
    return random.standard_normal((SIZE, SIZE), np.float32), random.standard_normal((SIZE, SIZE), np.float32)


def baseline(a, b):
    return np.maximum(a @ b, 0) + a


def variants(seed):
    """Odd shapes, and values that are no numbers."""
    random = np.random.default_rng(seed)
    odd = random.standard_normal((7, 13), np.float32), random.standard_normal((13, 13), np.float32)
    holed = inputs(seed)
    holed[0][3, 5] = np.nan
    return {"odd": odd, "nan": holed}
