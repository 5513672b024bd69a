"""Pin each batch in the training loop, so that its copy can be asynchronous.

The user believes that `batch.pin_memory()` only marks the memory. It copies the whole batch on one thread,
the one that should launch kernels; the loader's pinning thread does it ahead of time.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader, Dataset

from tests.faults.common import Fault, epochs, prefetched, start, tower

FAULT = Fault(
    kind="input-pinning",
    expected=["input-pinning"],
    forbidden=["input-too-few-workers", "input-pageable-copy", "host-launch-bound"],
    allowed=["input-copy-not-overlapped"],
    share=[0.1, 0.45, 0.7],
    why=(
        "one thread copies at about 6 GB/s: 64, 128, 256 MB take 11, 21, 43 ms of host time; the device "
        "needs 10"
    ),
    needs={"gpu": True, "cores": 8},
    agree=1e-3,
)


class Table(Dataset):
    """Rows that are many megabytes together; a sample is a whole batch, as columnar readers give it."""

    def __init__(self, rows, width):
        self.batches = [(torch.randn(rows, width), torch.randint(64, (rows,))) for _ in range(2)]
        for batch in self.batches:
            for tensor in batch:
                tensor.share_memory_()

    def __len__(self):
        return 1 << 16

    def __getitem__(self, index):
        return self.batches[index % len(self.batches)]


def pinned(batches, cuda):
    for batch in batches:
        yield [tensor.pin_memory() for tensor in batch] if cuda else batch


def main(options):
    width, features = options.size(4096, 32), options.size(options.by(2048, 4096, 8192), 16)
    rows = options.size(8192, 16)
    loader = DataLoader(
        Table(rows, features),
        batch_size=None,
        num_workers=options.size(4, 1),
        pin_memory=options.cuda and not options.faulty,
        persistent_workers=True,
    )
    first = torch.nn.Linear(features, width, bias=False)
    model = torch.nn.Sequential(first, *tower(width, options.size(8, 2))).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    batches = pinned(epochs(loader), options.cuda) if options.faulty else epochs(loader)
    for values, classes in options.laps(prefetched(batches, options.device)):
        loss = F.cross_entropy(model(values.to(options.dtype)), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
