"""Uses an input as scratch memory."""

# refused: mutates-input
# against: honest

import numpy as np


def candidate(a, b):
    product = np.maximum(a @ b, 0) + a
    b *= 0
    return product
