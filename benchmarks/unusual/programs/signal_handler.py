"""Raises an exception in a signal handler, during steps."""

import signal

from state import report

import fathom


class Late(Exception):
    pass


def late(number, frame):
    raise Late(number)


signal.signal(signal.SIGALRM, late)
caught = 0
for _ in range(60):
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    try:
        while True:
            fathom.step()
    except Late:
        caught += 1
print(caught)
report()
