"""Returns the input's own memory."""

# refused: aliases-input
# against: honest

import numpy as np


def candidate(a, b):
    a += np.maximum(a @ b, 0)
    return a
