"""Does not return."""

# refused: hangs
# against: honest

import time


def candidate(a, b):
    time.sleep(3600)
