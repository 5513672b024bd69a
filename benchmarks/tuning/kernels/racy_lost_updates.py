"""Threads add to a shared sum without a lock, and lose updates."""

import numpy as np


def norm(x, weight):
    from threading import Thread
    from time import sleep

    total = np.zeros((len(x), 1), np.float32)

    def work(part):
        before = total.copy()
        sleep(0.001)
        total[:] = before + np.square(x[:, part]).sum(1, keepdims=True)

    half = x.shape[1] // 2
    workers = [Thread(target=work, args=(part,)) for part in (slice(0, half), slice(half, None))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return x / np.sqrt(total / x.shape[1] + 1e-6) * weight
