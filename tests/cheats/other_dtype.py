"""Returns float16 where the baseline returns float32."""

# refused: contract
# against: honest

import numpy as np


def candidate(a, b):
    return (np.maximum(a @ b, 0) + a).astype(np.float16)
