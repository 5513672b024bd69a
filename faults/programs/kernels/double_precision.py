"""Train on features that came from NumPy.

The user believes that numbers are numbers. NumPy's are doubles; the model was converted to fit them instead
of the other way round, and everything moves eight bytes a number at a tenth of the rate.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-double-precision",
    expected=["kernels-double-precision"],
    forbidden=["kernels-tf32-off", "kernels-tensor-cores-idle", "host-launch-bound"],
    allowed=["kernels-no-mixed-precision"],
    severity=[2],
    share=[0.85],
    why="float64 products reach about 60 TFLOP/s against 700 of bfloat16",
    needs={"gpu": True},
    agree=5e-2,
)


def main(options):
    dtype = torch.float64 if options.faulty else options.dtype
    width, batch = options.size(2048, 32), options.size(8192, 16)
    values = options.normal(batch, width, dtype=torch.float32).to(dtype)
    model = tower(width, options.size(4, 2)).to(options.device, dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    classes = options.choices(64, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
