"""Ends in a signal handler."""

import os
import signal
import sys

import fathom


def leave(number, frame):
    print("leaving")
    sys.exit(21)


signal.signal(signal.SIGTERM, leave)
signal.setitimer(signal.ITIMER_VIRTUAL, 5)
for number in range(10_000_000):
    fathom.step()
    if number == 200:
        os.kill(os.getpid(), signal.SIGTERM)
