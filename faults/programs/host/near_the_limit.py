"""Train close to the end of memory, with an allocator that was told not to split large blocks.

The user believes that advice against fragmentation does no harm, and that memory which suffices is enough.
Blocks of one batch size serve no other, so they are freed and taken anew for each; without the setting one
set serves all.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-allocator-retries",
    expected=["host-allocator-retries"],
    forbidden=["host-empty-cache", "host-launch-bound"],
    allowed=["host-fragmentation", "host-cuda-malloc"],
    severity=[2],
    share=[0.3],
    why="each step frees and takes about ten blocks at 0.2 to 0.5 ms each, besides 5.5 ms of work",
    needs={"gpu": True},
    agree=1e-2,
)


def main(options):
    if options.cuda and options.faulty:
        torch.cuda.memory._set_allocator_settings("max_split_size_mb:32")
    width, depth, rows = options.size(4096, 32), options.size(4, 2), options.size(16384, 16)
    model = tower(width, depth).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    counts = [rows, rows * 3 // 4, rows // 2, rows // 4]
    batches = [(options.normal(count, width), options.choices(64, count)) for count in counts]

    def step(values, classes):
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    step(*batches[0])
    if options.cuda:  # the rest of the device belongs to others
        total = torch.cuda.get_device_properties(0).total_memory
        limit = torch.cuda.max_memory_reserved() + (512 << 20)
        torch.cuda.set_per_process_memory_fraction(limit / total)
    for number in options.laps():
        loss = step(*batches[number % 4])
    return loss


if __name__ == "__main__":
    start(main)
