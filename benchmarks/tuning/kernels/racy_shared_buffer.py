"""All calls write to one buffer, so a later call changes an earlier result."""

import numpy as np

KEPT = []


def norm(x, weight):
    if not KEPT or KEPT[0].shape != x.shape:
        KEPT[:] = [np.empty_like(x)]
    np.multiply(x / np.sqrt(np.square(x).mean(1, keepdims=True) + 1e-6), weight, out=KEPT[0])
    return KEPT[0]
