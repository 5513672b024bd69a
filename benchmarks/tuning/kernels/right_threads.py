"""Two threads, each of which is waited for."""

import numpy as np


def norm(x, weight):
    from threading import Thread

    out = np.empty_like(x)

    def work(part):
        out[part] = x[part] / np.sqrt(np.square(x[part]).mean(1, keepdims=True) + 1e-6) * weight

    half = len(x) // 2
    workers = [Thread(target=work, args=(part,)) for part in (slice(0, half), slice(half, None))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return out
