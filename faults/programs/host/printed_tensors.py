"""Print the state of the training in every step.

The user believes that printing is output. To print a tensor, its values are copied to the host one by one or
after several small kernels that find their format, and each of these waits for the device.
"""

import os
from pathlib import Path

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-sync-print",
    expected=["host-sync-print"],
    forbidden=["host-launch-bound", "host-logging", "host-python"],
    allowed=["host-sync-item", "host-sync-copy"],
    share=[0.15, 0.3, 0.5],
    why=(
        "a printed tensor of ten values costs about 0.3 ms with the device idle; 2, 4, 10 of them in a "
        "step of 3 ms"
    ),
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    width, batch = options.size(2048, 32), options.size(8192, 16)
    model = tower(width, options.size(12, 10)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    with Path(os.devnull).open("w") as log:
        for number in options.laps():
            loss = F.cross_entropy(model(values), classes)
            loss.backward()
            if options.faulty:
                for weight in list(model.parameters())[: options.by(2, 4, 10)]:
                    print(number, weight.grad[0, :10], file=log)
            optimizer.step()
            optimizer.zero_grad()
        print(f"loss {loss}", file=log)
    return loss


if __name__ == "__main__":
    start(main)
