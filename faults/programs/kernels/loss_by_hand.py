"""Take the loss over a vocabulary with softmax, one-hot labels and a sum.

The user believes that this is what cross-entropy is. Each intermediate result is as large as the logits, here
in float32, and there are five; the library's loss reads the logits twice.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-unfused-loss",
    expected=["kernels-unfused-loss"],
    forbidden=["kernels-unfused-norm", "numbers-odd-vocabulary", "host-launch-bound"],
    allowed=["kernels-unfused-elementwise", "kernels-needless-casts"],
    share=[0.25, 0.4, 0.5],
    why=(
        "about 12 passes over 8,192 rows of 16, 32, 64 thousand float32 logits, 1.6 ms a 16 thousand, "
        "besides products"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


def by_hand(logits, classes):
    probabilities = torch.softmax(logits.float(), -1)
    wanted = F.one_hot(classes, logits.shape[-1]).float()
    return -(wanted * torch.log(probabilities + 1e-9)).sum(-1).mean()


def main(options):
    width, rows = options.size(2048, 32), options.size(8192, 16)
    vocabulary = options.size(options.by(16384, 32768, 65536), 64)
    model = nn.Sequential(*tower(width, options.size(4, 1), vocabulary)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(rows, width), options.choices(vocabulary, rows)
    loss_of = by_hand if options.faulty else F.cross_entropy
    for _ in options.laps():
        loss = loss_of(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
