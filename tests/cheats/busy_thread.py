"""Keeps threads at work after it has returned."""

# refused: background-work
# against: honest

import threading

import numpy as np

_started = []


def _work():
    x = np.ones((64, 64))
    while True:
        x = np.tanh(x @ x)


def candidate(a, b):
    while len(_started) < 4:  # several, so that they get a share of a busy machine
        _started.append(threading.Thread(target=_work, daemon=True))
        _started[-1].start()
    return np.maximum(a @ b, 0) + a
