"""Replaces itself by another program."""

import os
import sys

import fathom

for _ in range(20):
    fathom.step()
sys.stdout.flush()
os.execv(
    sys.executable, [sys.executable, "-c", "import os, sys; print(sorted(os.environ), sys.path); sys.exit(4)"]
)
