"""Sets the seed of everybody's random numbers."""

# refused: global-state
# against: honest

import numpy as np


def candidate(a, b):
    np.random.seed(0)
    return np.maximum(a @ b, 0) + a
