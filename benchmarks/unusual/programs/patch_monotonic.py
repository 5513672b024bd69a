"""Replaces `time.monotonic` by a function that ends the program."""

import sys
import time

from state import report

import fathom

report()


def broken(*_, **__):
    sys.exit(99)


original, time.monotonic = time.monotonic, broken
for _ in range(60):
    fathom.step()
time.monotonic = original
print("done")
report()
sys.exit(13)
