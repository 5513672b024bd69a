"""Makes a step at every level of a recursion that exceeds the limit, and reports its depth."""

import sys

from state import report

import fathom

sys.setrecursionlimit(400)
deepest = 0


def recurse(depth):
    global deepest
    deepest = depth
    fathom.step()
    recurse(depth + 1)


fathom.step()
for _ in range(3):
    try:
        recurse(0)
    except RecursionError as error:
        print(deepest, error)
sys.setrecursionlimit(1000)
report()
