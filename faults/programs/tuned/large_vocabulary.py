"""Train a language model's last layer: a vocabulary of 50,304, the library's loss."""

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind=None,
    severity=[2],
    allowed=["kernels-unfused-loss"],
    why="the loss reads and writes the logits once each way; products of width 8,192 outweigh that by far",
    needs={"gpu": True},
)


def main(options):
    width, batch, vocabulary = options.size(8192, 32), options.size(8192, 16), options.size(50304, 64)
    model = tower(width, options.size(2, 1), vocabulary).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(vocabulary, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
