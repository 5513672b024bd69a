"""Train in float32 with TF32 allowed, where bfloat16 would do.

The user believes that TF32 is as fast as it gets. bfloat16 halves both the time of the products and the bytes
of everything else.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-no-mixed-precision",
    expected=["kernels-no-mixed-precision"],
    forbidden=["kernels-tf32-off", "kernels-double-precision", "kernels-tensor-cores-idle"],
    severity=[2],
    share=[0.45],
    why="products go from 360 to 700 TFLOP/s, activations to half their bytes; the optimizer's bytes stay",
    needs={"gpu": True},
    agree=5e-2,
)


def main(options):
    torch.backends.cuda.matmul.allow_tf32 = True
    width, batch = options.size(4096, 32), options.size(16384, 16)
    model = tower(width, options.size(3, 2)).to(options.device)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width, dtype=torch.float32), options.choices(64, batch)
    kind = torch.device(options.device).type
    for _ in options.laps():
        with torch.autocast(kind, torch.bfloat16, enabled=not options.faulty):
            loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
