"""Has its own excepthook and exit handlers, of which one raises."""

import atexit
import sys

import fathom

sys.excepthook = lambda kind, error, trace: print("hook", kind.__name__, error, trace.tb_next)
atexit.register(lambda: print("last"))
for _ in range(30):
    fathom.step()
atexit.register(lambda: 1 / 0)
raise ValueError("as planned")
