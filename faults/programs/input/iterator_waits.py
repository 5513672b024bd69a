"""Fetch each batch from a remote store in the `__next__` that the training loop calls.

The user believes that the network is fast enough. Each request is answered after milliseconds, in which the
training thread does nothing else; a thread could wait for the next answer during the step.
"""

import queue
import threading
import time

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, PatchNet, start

FAULT = Fault(
    kind="input-made-in-the-loop",
    expected=["input-made-in-the-loop"],
    forbidden=["input-too-few-workers", "input-storage-bound", "host-python", "host-blocked"],
    allowed=["input-pageable-copy", "input-synchronous-copy"],
    share=[0.15, 0.3, 0.45],
    why="an answer takes 2, 4, 7 ms, and the device's step 8 ms; a thread hides the answer behind the step",
    needs={"gpu": True},
    agree=1e-3,
)


class Remote:
    """An object store: each request takes a while, during which the host waits."""

    def __init__(self, samples, delay_s):
        self.samples, self.delay_s, self.asked = samples, delay_s, 0

    def __iter__(self):
        return self

    def __next__(self):
        time.sleep(self.delay_s)
        self.asked += 1
        return self.samples[self.asked % len(self.samples)]


def ahead(batches, most=2):
    ready = queue.Queue(most)

    def fill():
        for batch in batches:
            ready.put(batch)

    threading.Thread(target=fill, daemon=True).start()
    while True:
        yield ready.get()


def main(options):
    size, batch = options.size(160, 32), options.size(64, 4)
    samples = [(torch.randn(batch, 3, size, size), torch.randint(64, (batch,))) for _ in range(4)]
    if options.cuda:
        samples = [[tensor.pin_memory() for tensor in sample] for sample in samples]
    remote = Remote(samples, options.by(0.002, 0.004, 0.007))
    model = PatchNet(options.size(4096, 64), options.size(8, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for images, classes in options.laps(remote if options.faulty else ahead(remote)):
        images = images.to(options.device, options.dtype, non_blocking=True)
        loss = F.cross_entropy(model(images), classes.to(options.device, non_blocking=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
