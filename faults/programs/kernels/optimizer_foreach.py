"""Use AdamW with its defaults on a large model.

The user believes that the default is the fastest. It works on lists of tensors, one operation at a time, so
that parameters, gradients and moments pass through memory several times; `fused=True` reads and writes each
once.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-unfused-optimizer",
    expected=["kernels-unfused-optimizer"],
    forbidden=["kernels-for-loop-optimizer", "host-launch-bound", "kernels-unfused-elementwise"],
    allowed=["kernels-batch-too-small"],
    share=[0.15, 0.25, 0.35],
    why=(
        "about 60 bytes a parameter against 28 in float32: 4 ms for 500 M parameters, after passes of 15, "
        "8, 4 ms"
    ),
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    torch.backends.cuda.matmul.allow_tf32 = True
    width, batch = options.size(8192, 32), options.size(options.by(4096, 2048, 1024), 16)
    model = tower(width, options.size(8, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=None if options.faulty else True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
