"""Returns a generator."""

# refused: lazy-result
# against: honest

import numpy as np


def candidate(a, b):
    yield np.maximum(a @ b, 0) + a
