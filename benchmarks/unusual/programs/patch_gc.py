"""Replaces the garbage collector's functions and counts its collections."""

import gc

from state import report

import fathom

gc.isenabled = gc.collect = gc.disable = gc.enable = lambda *_: 1 / 0
for _ in range(80):
    fathom.step()
report()
