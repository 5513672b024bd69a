"""Train in float32, with torch's defaults.

The user believes that tensor cores are used. Since torch 1.12 float32 products run on the ordinary cores
unless TF32 is allowed, at a seventh of the rate.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-tf32-off",
    expected=["kernels-tf32-off"],
    forbidden=["kernels-double-precision", "kernels-tensor-cores-idle", "host-launch-bound"],
    allowed=["kernels-no-mixed-precision"],
    severity=[2],
    share=[0.8],
    why="products are nearly all of the step and go from 51 to 360 TFLOP/s",
    needs={"gpu": True},
    agree=1e-2,
)


def main(options):
    torch.backends.cuda.matmul.allow_tf32 = not options.faulty
    width, batch = options.size(4096, 32), options.size(4096, 16)
    model = tower(width, options.size(3, 2)).to(options.device)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width, dtype=torch.float32), options.choices(64, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
