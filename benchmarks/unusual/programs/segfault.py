"""Crashes by reading address 0."""

import ctypes
import sys

import fathom

for _ in range(70):
    fathom.step()
print("before")
sys.stdout.flush()
ctypes.string_at(0)
