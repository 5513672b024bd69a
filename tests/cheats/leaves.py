"""Ends its process."""

# refused: raises
# against: honest

import os


def candidate(a, b):
    os._exit(0)
