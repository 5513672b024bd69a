"""Set gradients to zero instead of dropping them.

The user believes that `zero_grad` resets something. With `set_to_none=False` it writes zeros over all
gradients, and the backward pass then reads them to add to them.
"""

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-gradient-memset",
    expected=["kernels-gradient-memset"],
    forbidden=["kernels-unfused-optimizer", "kernels-unfused-elementwise", "host-launch-bound"],
    allowed=["kernels-batch-too-small"],
    share=[0.08, 0.12, 0.16],
    why=(
        "2 bytes a parameter for the zeros and 6 for adding: 1 ms for 540 M parameters, in steps of 12, "
        "8, 6 ms"
    ),
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    width, batch = options.size(8192, 32), options.size(options.by(2048, 1024, 512), 16)
    model = tower(width, options.size(8, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    for _ in options.laps():
        optimizer.zero_grad(set_to_none=not options.faulty)
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
    return loss


if __name__ == "__main__":
    start(main)
