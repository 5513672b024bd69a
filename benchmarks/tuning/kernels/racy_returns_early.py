"""The result is returned before the thread that writes it has ended."""

import numpy as np


def norm(x, weight):
    from threading import Thread
    from time import sleep

    out = np.zeros_like(x)

    def work():
        sleep(0.01)
        out[:] = x / np.sqrt(np.square(x).mean(1, keepdims=True) + 1e-6) * weight

    Thread(target=work).start()
    return out
