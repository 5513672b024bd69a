"""Returns the transpose of what it computed: whoever reads it pays."""

# refused: contract
# against: honest

import numpy as np


def candidate(a, b):
    return (np.maximum(b.T @ a.T, 0) + a.T).T
