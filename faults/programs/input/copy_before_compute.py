"""Copy each batch to the device right before it is used.

The user has pinned the memory and copies without blocking. The copy still stands in the queue before the
forward pass of the same step; sent one step earlier on a separate stream it would cost nothing.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, epochs, prefetched, start, tower

FAULT = Fault(
    kind="input-copy-not-overlapped",
    expected=["input-copy-not-overlapped"],
    forbidden=["input-pageable-copy", "input-synchronous-copy", "input-too-few-workers"],
    share=[0.12, 0.22, 0.36],
    why="64, 128, 256 MB at 55 GB/s: 1.2, 2.4, 4.9 ms of a step of 8.5 ms without them",
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    rows, features = options.size(8192, 16), options.size(options.by(2048, 4096, 8192), 16)
    batches = [(torch.randn(rows, features), torch.randint(64, (rows,))) for _ in range(2)]
    if options.cuda:
        batches = [[tensor.pin_memory() for tensor in batch] for batch in batches]
    width = options.size(4096, 32)
    model = torch.nn.Sequential(
        torch.nn.Linear(features, width, bias=False), *tower(width, options.size(6, 2))
    )
    model.to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    sent = ([t.to(options.device, non_blocking=True) for t in batch] for batch in epochs(batches))
    source = sent if options.faulty else prefetched(epochs(batches), options.device)
    for values, classes in options.laps(source):
        loss = F.cross_entropy(model(values.to(options.dtype)), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
