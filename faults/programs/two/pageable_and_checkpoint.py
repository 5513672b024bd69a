"""Send batches from pageable memory, and save a checkpoint every few steps.

Two faults, one in every step and one in some.
"""

import tempfile
from pathlib import Path

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, epochs, prefetched, start, tower

FAULT = Fault(
    kind="host-checkpoint",
    expected=["host-checkpoint", "input-pageable-copy"],
    forbidden=["host-logging", "input-too-few-workers", "host-launch-bound"],
    allowed=["input-copy-not-overlapped"],
    severity=[2],
    share=[0.65],
    why=(
        "170 MB of weights take about 100 ms to save, in every 8th step; 128 MB of input take 6 ms, "
        "beside 8 ms of work"
    ),
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    rows, width = options.size(16384, 16), options.size(4096, 32)
    batches = [(torch.randn(rows, width).to(options.dtype), torch.randint(64, (rows,))) for _ in range(2)]
    if options.cuda and not options.faulty:
        batches = [[tensor.pin_memory() for tensor in batch] for batch in batches]
    model = tower(width, options.size(5, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    sent = ([t.to(options.device) for t in batch] for batch in epochs(batches))
    source = sent if options.faulty else prefetched(epochs(batches), options.device)
    with tempfile.TemporaryDirectory() as folder:
        for number, (values, classes) in enumerate(options.laps(source)):
            loss = F.cross_entropy(model(values), classes)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if options.faulty and number % 8 == 0:
                torch.save(model.state_dict(), Path(folder) / "checkpoint.pt")
    return loss


if __name__ == "__main__":
    start(main)
