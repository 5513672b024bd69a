"""Keep small results between large temporary tensors of changing size.

The user believes that free memory is memory that can be used. What is kept pins its segment in pieces too
small for the next request, so memory is reserved several times over, and asked of the driver anew; expandable
segments or one buffer for what is kept end it.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-fragmentation",
    expected=["host-fragmentation"],
    forbidden=["host-empty-cache", "host-launch-bound"],
    allowed=["host-cuda-malloc", "host-allocator-retries"],
    share=[0.06, 0.1, 0.18],
    why=(
        "a step's 2, 4, 8 large tensors of a new size find no whole segment: cudaMalloc at 0.2 ms each, "
        "in steps of 5 ms"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


def main(options):
    if options.cuda and not options.faulty:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    width, depth, rows = options.size(4096, 32), options.size(4, 2), options.size(8192, 16)
    model = tower(width, depth).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(rows, width), options.choices(64, rows)
    unit, kept = options.size(1 << 20, 1 << 8), []
    for number in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        for place in range(options.by(2, 4, 8)):
            count = (16 + number + 3 * place) * unit
            scratch = torch.empty(count, device=options.device, dtype=torch.uint8)
            del scratch
            kept.append(torch.empty(2 * unit, device=options.device, dtype=torch.uint8))  # out of its segment
        kept = kept[-512:]
    return loss


if __name__ == "__main__":
    start(main)
