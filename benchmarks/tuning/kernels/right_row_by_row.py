"""Row by row, slow but right."""

import numpy as np


def norm(x, weight):
    rows = [row / np.sqrt(np.mean(row * row) + np.float32(1e-6)) * weight for row in x]
    return np.stack(rows)
