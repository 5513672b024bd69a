"""Train so close to the end of memory that the allocator gives up its cache again and again.

The user believes that a program that doesn't fail has memory enough. Whenever an allocation fails, the
allocator frees everything that it kept and asks the driver anew; a quarter less batch, or its recomputation,
ends it.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from tests.faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-allocator-retries",
    expected=["host-allocator-retries"],
    forbidden=["host-empty-cache", "host-launch-bound"],
    allowed=["host-fragmentation", "host-cuda-malloc"],
    severity=[2],
    share=[0.3],
    why=(
        "of four batch sizes in turn none fits beside another's blocks: a retry of about 3 ms in most "
        "steps of 6 ms"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


def main(options):
    width, depth, rows = options.size(4096, 32), options.size(4, 2), options.size(8192, 16)
    model = tower(width, depth).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    counts = [rows, rows * 7 // 8, rows * 3 // 4, rows * 5 // 8]
    batches = [(options.normal(count, width), options.choices(64, count)) for count in counts]

    def step(values, classes):
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    step(*batches[0])
    if options.cuda and options.faulty:  # the device is another's but for this much
        total = torch.cuda.get_device_properties(0).total_memory
        limit = torch.cuda.max_memory_reserved() + (64 << 20)
        torch.cuda.set_per_process_memory_fraction(limit / total)
    for number in options.laps():
        loss = step(*batches[number % 4])
    return loss


if __name__ == "__main__":
    start(main)
