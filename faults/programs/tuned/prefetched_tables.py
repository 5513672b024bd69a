"""Train on large tables in pinned memory, each copied while the one before is worked on."""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, epochs, prefetched, start, tower

FAULT = Fault(
    kind=None,
    severity=[2],
    why="134 MB in bfloat16 take 2.5 ms on a separate stream, the step 10 ms",
    needs={"gpu": True},
)


def main(options):
    rows, width = options.size(16384, 16), options.size(4096, 32)
    batches = [(torch.randn(rows, width).to(options.dtype), torch.randint(64, (rows,))) for _ in range(2)]
    if options.cuda:
        batches = [[tensor.pin_memory() for tensor in batch] for batch in batches]
    model = tower(width, options.size(5, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for values, classes in options.laps(prefetched(epochs(batches), options.device)):
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
