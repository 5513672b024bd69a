"""Returns memory that it never wrote."""

# refused: unwritten-output
# against: honest

import numpy as np


def candidate(a, b):
    return np.empty((96, 96), np.float32)
