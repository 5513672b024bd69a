"""Calls the baseline."""

# refused: calls-baseline
# against: honest

import honest


def candidate(a, b):
    return honest.baseline(a, b)
