"""Train with autograd's anomaly detection left on after a search for a NaN.

The user believes that it only acts where a NaN appears. It reads every gradient of the backward pass, waits
for each answer, and stores a Python stack for each operation of the forward pass.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="framework-anomaly-detection",
    expected=["framework-anomaly-detection"],
    forbidden=["host-sync-item", "host-sync-explicit"],
    allowed=["host-launch-bound"],
    share=[0.2, 0.4, 0.65],
    why=(
        "a check idles for about 35 us, and there are 4 a layer: 48, 96, 192 of them, "
        "beside work of 6, 4.5, 2.5 ms; stacks of the forward pass are not reckoned"
    ),
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    width, depth = options.size(options.by(2048, 1536, 1024), 32), options.size(options.by(12, 24, 48), 3)
    model = tower(width, depth).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    batch = options.size(8192, 16)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    torch.autograd.set_detect_anomaly(options.faulty)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
