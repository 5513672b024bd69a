"""Make each batch in a generator that the training loop iterates over.

The user believes that a generator streams. It runs in the training thread between two steps, so the device
waits while NumPy makes the batch.
"""

import itertools

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from faults.common import Fault, PatchNet, start

FAULT = Fault(
    kind="input-made-in-the-loop",
    expected=["input-made-in-the-loop"],
    forbidden=["input-too-few-workers", "input-slow-transform", "host-python", "host-launch-bound"],
    allowed=["input-pageable-copy", "input-synchronous-copy", "input-pinning"],
    share=[0.5, 0.7, 0.85],
    why="NumPy takes about 10, 20, 50 ms to sort and clip 32, 64, 160 signals; the device's step takes 8 ms",
    needs={"gpu": True, "cores": 14},
    agree=1e-3,
)


class Batches(IterableDataset):
    def __init__(self, count, size, passes):
        self.count, self.size, self.passes = count, size, passes

    def __iter__(self):
        worker = get_worker_info()
        first, every = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in itertools.count(first, every):
            yield self.made(index)

    def made(self, index):
        generator = np.random.default_rng(index)
        values = generator.standard_normal((self.count, 3, self.size, self.size), dtype=np.float32)
        for _ in range(self.passes):
            values = np.clip(values - np.median(values, axis=3, keepdims=True), -3, 3)
        return torch.from_numpy(values), torch.from_numpy(generator.integers(0, 64, self.count))


def main(options):
    passes = options.by(1, 2, 5)
    data = Batches(options.size(32, 4), options.size(96, 32), passes)
    workers = options.size(12, 1)
    batches = iter(data) if options.faulty else DataLoader(data, None, num_workers=workers)
    model = PatchNet(options.size(4096, 64), options.size(8, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for images, classes in options.laps(iter(batches)):
        images = images.to(options.device, options.dtype, non_blocking=True)
        loss = F.cross_entropy(model(images), classes.to(options.device, non_blocking=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
