"""Send batches that lie in ordinary memory to the device.

The user believes that `.to("cuda", non_blocking=True)` does not wait. From pageable memory it is staged
through a small pinned buffer at half the link's speed while the host stands still.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, epochs, prefetched, start, tower

FAULT = Fault(
    kind="input-pageable-copy",
    expected=["input-pageable-copy"],
    forbidden=["input-too-few-workers", "input-pinning", "input-synchronous-copy", "host-launch-bound"],
    allowed=["input-copy-not-overlapped"],
    share=[0.25, 0.4, 0.55],
    why=(
        "64, 128, 256 MB at 20 to 25 GB/s: 2.8, 5.7, 11 ms on the way of a step of 8 ms; pinned copies "
        "overlap"
    ),
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    rows, features = options.size(8192, 16), options.size(options.by(2048, 4096, 8192), 16)
    batches = [(torch.randn(rows, features), torch.randint(64, (rows,))) for _ in range(2)]
    if options.cuda and not options.faulty:
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
