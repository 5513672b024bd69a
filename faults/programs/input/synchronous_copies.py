"""Send a dictionary of many small features to the device, one by one.

The user believes that copies of pinned memory are asynchronous. Without `non_blocking=True` each one waits
for all work queued before it, so the host's lead over the device is lost at the first and the rest are paid
in full.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, epochs, start, tower

FAULT = Fault(
    kind="input-synchronous-copy",
    expected=["input-synchronous-copy"],
    forbidden=["input-pageable-copy", "input-too-few-workers"],
    allowed=["host-launch-bound", "input-copy-not-overlapped"],  # in both forms they precede the step
    share=[0.12, 0.22, 0.35],
    why="each copy costs about 15 us while the device is idle: 32, 64, 128 of them before a step of 3.5 ms",
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    rows, count = options.size(8192, 16), options.size(options.by(32, 64, 128), 4)
    batches = [
        {f"feature {n}": torch.randn(rows) for n in range(count)} | {"class": torch.randint(64, (rows,))}
        for _ in range(4)
    ]
    if options.cuda:
        batches = [{name: tensor.pin_memory() for name, tensor in batch.items()} for batch in batches]
    width = options.size(2048, 32)
    model = torch.nn.Sequential(torch.nn.Linear(count, width, bias=False), *tower(width, options.size(12, 2)))
    model.to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for batch in options.laps(epochs(batches)):
        here = {name: t.to(options.device, non_blocking=not options.faulty) for name, t in batch.items()}
        classes = here.pop("class")
        values = torch.stack(list(here.values()), 1).to(options.dtype)
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
