"""Only the first of two threads is waited for."""

import numpy as np


def norm(x, weight):
    from threading import Thread
    from time import sleep

    out = np.zeros_like(x)

    def work(part, late):
        sleep(late)
        out[part] = x[part] / np.sqrt(np.square(x[part]).mean(1, keepdims=True) + 1e-6) * weight

    half = len(x) // 2
    first = Thread(target=work, args=(slice(0, half), 0.0))
    second = Thread(target=work, args=(slice(half, None), 0.005))
    first.start()
    second.start()
    first.join()
    return out
