"""Train a language model's last layer with an odd vocabulary and a loss by hand.

Two faults: unaligned products, and five float32 copies of the logits.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="numbers-odd-vocabulary",
    expected=["numbers-odd-vocabulary", "kernels-unfused-loss"],
    forbidden=["kernels-tf32-off", "host-launch-bound", "kernels-unfused-norm"],
    allowed=["kernels-tensor-cores-idle", "kernels-unfused-elementwise", "kernels-needless-casts"],
    severity=[2],
    share=[0.65],
    why=(
        "products of 50,257 columns take 20 ms instead of 7 (width 2,048), the loss 5 ms instead of 1, "
        "the rest 4"
    ),
    needs={"gpu": True},
    agree=5e-2,
)


def by_hand(logits, classes):
    probabilities = torch.softmax(logits.float(), -1)
    wanted = F.one_hot(classes, logits.shape[-1]).float()
    return -(wanted * torch.log(probabilities + 1e-9)).sum(-1).mean()


def main(options):
    width, batch, words = options.size(2048, 32), options.size(8192, 16), options.size(50257, 57)
    vocabulary = words if options.faulty else -(-words // 64) * 64
    model = tower(width, options.size(4, 1), vocabulary).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(words, batch)
    loss_of = by_hand if options.faulty else F.cross_entropy
    for _ in options.laps():
        loss = loss_of(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
