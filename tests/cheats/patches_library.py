"""Replaces a function of a library that others use."""

# refused: global-state
# against: honest

import numpy as np

_true = np.maximum
np.maximum = lambda *given, **options: _true(*given, **options)


def candidate(a, b):
    return _true(a @ b, 0) + a
