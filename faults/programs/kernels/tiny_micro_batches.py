"""Accumulate gradients over many micro-batches of a few rows.

The user believes that only the total counts. A product of 64 rows reads all weights for little work and
leaves most of the chip without a tile; the memory for one large batch is there.
"""

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-batch-too-small",
    expected=["kernels-batch-too-small"],
    forbidden=["kernels-low-occupancy", "kernels-wave-quantisation", "kernels-weight-bound-decode"],
    allowed=["host-launch-bound", "kernels-memory-headroom"],
    share=[0.6, 0.75, 0.85],
    why=(
        "micro-batches of 256, 128, 64 rows take as long as their weights and launches, not as their products"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


def main(options):
    width, batch = options.size(4096, 32), options.size(2048, 32)
    rows = options.size(options.by(256, 128, 64), 8) if options.faulty else batch
    model = tower(width, options.size(4, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    for _ in options.laps():
        total = 0.0
        for some, of in zip(values.split(rows), classes.split(rows), strict=True):
            loss = F.cross_entropy(model(some), of) * len(some) / batch
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
    return total


if __name__ == "__main__":
    start(main)
