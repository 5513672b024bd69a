"""Raises an exception in a signal handler, during steps."""

import signal

from state import report

import fathom


class Late(Exception):
    pass


def late(number, frame):
    raise Late(number)


signal.signal(signal.SIGALRM, late)
step, caught = fathom.step, 0  # imported once, before exceptions interrupt the import
for _ in range(60):
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    try:
        while True:
            step()
    except Late:
        caught += 1
print(caught)
report()
