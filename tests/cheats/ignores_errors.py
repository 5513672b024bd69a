"""Switches off numpy's warnings for everybody."""

# refused: global-state
# against: honest

import numpy as np


def candidate(a, b):
    np.seterr(all="ignore")
    return np.maximum(a @ b, 0) + a
