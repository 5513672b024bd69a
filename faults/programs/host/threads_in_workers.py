"""Let every loader worker use all cores.

The user believes that more threads are faster. Twelve workers with a thread a core each want ten times the
cores that there are; they hold each other up, and the thread that launches kernels too.
"""

import os

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader, Dataset

from faults.common import Fault, PatchNet, epochs, prefetched, start
from faults.files import normalised

FAULT = Fault(
    kind="host-cpu-oversubscription",
    expected=["host-cpu-oversubscription"],
    forbidden=["input-too-few-workers", "input-storage-bound", "input-slow-decode"],
    allowed=["input-slow-transform", "host-thread-contention", "input-cpu-preprocessing"],
    share=[0.3, 0.5, 0.7],
    why=(
        "with 12 workers of 2, 4, 16 threads on 16 cores, barriers of the thread pool wait for cores: 2 "
        "to 5 times slower"
    ),
    needs={"gpu": True, "cores": 14},
    agree=1e-3,
)


class Blurred(Dataset):
    def __init__(self, size):
        self.pictures = torch.randint(256, (64, 3, size, size), dtype=torch.uint8)
        self.kernel = torch.full((3, 1, 5, 5), 1 / 25)

    def __len__(self):
        return 1 << 16

    def __getitem__(self, index):
        picture = self.pictures[index % 64].float()[None]
        for _ in range(8):  # a worker's thread is busy for most of the time that the GPU gives it
            picture = F.conv2d(picture, self.kernel, padding=2, groups=3)
        return picture[0].to(torch.uint8), index % 64


class Threads:
    def __init__(self, count):
        self.count = count

    def __call__(self, _):
        torch.set_num_threads(self.count)


def main(options):
    threads = options.by(2, 4, len(os.sched_getaffinity(0))) if options.faulty and not options.small else 1
    loader = DataLoader(
        Blurred(options.size(96, 32)),
        options.size(16, 4),
        num_workers=options.size(12, 1),
        pin_memory=options.cuda,
        persistent_workers=True,
        multiprocessing_context="forkserver",  # in a forked worker the parent's pool of threads never answers
        worker_init_fn=Threads(threads),
    )
    # Few wide layers: the GPU takes longer than launching them, and no longer than keeps workers busy.
    model = PatchNet(options.size(10240, 64), options.size(4, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for images, classes in options.laps(prefetched(epochs(loader), options.device)):
        loss = F.cross_entropy(model(normalised(images, options.dtype)), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
