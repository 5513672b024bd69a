"""Choose the width of a model by its number of parameters.

The user believes that 3,001 is as good as 3,072. No row of any weight or activation begins at a multiple of
sixteen bytes, so each product takes kernels that load two bytes at a time.
"""

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="numbers-odd-size",
    expected=["numbers-odd-size"],
    forbidden=["kernels-tf32-off", "kernels-batch-too-small", "kernels-no-mixed-precision"],
    allowed=["kernels-tensor-cores-idle"],
    share=[0.15, 0.35, 0.5],
    why="rows aligned to 8, 4, 2 bytes instead of 16 cost more and more of the products' rate",
    needs={"gpu": True},
)


def main(options):
    width, batch = options.size(options.by(3004, 3002, 3001), 31), options.size(8192, 16)
    if not options.faulty:
        width = -(-width // 64) * 64
    model = tower(width, options.size(6, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
