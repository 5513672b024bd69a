"""Log the norm of the gradient, parameter by parameter.

The user believes that `.item()` reads a number. It waits until the device has finished everything before it,
and the device then waits for the host: once for each parameter, in every step.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-sync-item",
    expected=["host-sync-item"],
    forbidden=["host-launch-bound", "host-python", "host-sync-copy", "kernels-unfused-optimizer"],
    share=[0.1, 0.18, 0.3],
    why="an .item() leaves the device idle for about 30 us; 12, 24, 48 of them in steps of 2.5 to 6 ms",
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    width, depth = options.size(options.by(2048, 1536, 1024), 32), options.size(options.by(12, 24, 48), 3)
    model = tower(width, depth).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = (
        options.normal(options.size(8192, 16), width),
        options.choices(64, options.size(8192, 16)),
    )
    history = []
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        if options.faulty:
            history.append(sum(p.grad.norm().item() ** 2 for p in model.parameters()) ** 0.5)
        else:
            history.append(torch.nn.utils.get_total_norm(p.grad for p in model.parameters()))
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
