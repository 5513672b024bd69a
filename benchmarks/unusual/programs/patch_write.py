"""Replaces `os.write` by a function that raises."""

import os
import sys

from state import report

import fathom

report()


def broken(*_, **__):
    raise OSError(28, "as planned")


original, os.write = os.write, broken
for _ in range(60):
    fathom.step()
os.write = original
print("done")
report()
sys.exit(13)
