"""Closes its standard streams."""

import os
import sys

import fathom

for _ in range(30):
    fathom.step()
print("before", flush=True)
sys.stdin.close()
sys.stdout.close()
sys.stderr = None
os.close(2)
for _ in range(3000):
    fathom.step()
sys.exit(3)
