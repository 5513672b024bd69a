"""Interrupts itself with Ctrl-C's signal."""

import os
import signal

import fathom

signal.signal(signal.SIGINT, signal.default_int_handler)
for _ in range(50):
    fathom.step()
try:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(50):
        fathom.step()
except KeyboardInterrupt:
    print("interrupted")
os.kill(os.getpid(), signal.SIGINT)
