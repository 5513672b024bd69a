"""Pin each batch in the training loop, so that its copy can be asynchronous.

The user believes that `batch.pin_memory()` only marks the memory. It copies the whole batch on one thread,
the one that should launch kernels; the loader's pinning thread would be no quicker. A table that stays is
pinned once. The process computes with one thread, as torchrun has it: sixteen copy faster than the link does.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, epochs, prefetched, start, tower

FAULT = Fault(
    kind="input-pinning",
    expected=["input-pinning"],
    forbidden=["input-too-few-workers", "input-pageable-copy", "host-launch-bound"],
    allowed=["input-copy-not-overlapped"],
    share=[0.1, 0.45, 0.7],
    why=(
        "one thread copies at 6 to 10 GB/s: 64, 128, 256 MB take 7, 14, 28 ms of host time at least; the "
        "device needs 7"
    ),
    needs={"gpu": True, "cores": 2},
    agree=1e-3,
)


def pinned(batch):
    return [tensor.pin_memory() for tensor in batch]


def main(options):
    if options.cuda:
        torch.set_num_threads(1)
    width, features = options.size(4096, 32), options.size(options.by(2048, 4096, 8192), 16)
    rows = options.size(8192, 16)
    table = [(torch.randn(rows, features), torch.randint(64, (rows,))) for _ in range(2)]
    if options.cuda and not options.faulty:
        table = [pinned(batch) for batch in table]
    batches = epochs(table)
    if options.cuda and options.faulty:
        batches = map(pinned, batches)
    first = torch.nn.Linear(features, width, bias=False)
    model = torch.nn.Sequential(first, *tower(width, options.size(5, 2))).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for values, classes in options.laps(prefetched(batches, options.device)):
        loss = F.cross_entropy(model(values.to(options.dtype)), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
