"""Train a convolutional net in bfloat16 and channels last, with kernels searched once."""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, conv_net, start

FAULT = Fault(
    kind=None,
    severity=[2],
    why="convolutions of 512 channels are compute-bound; only activations between them pass through memory",
    needs={"gpu": True},
)


def main(options):
    torch.backends.cudnn.benchmark = True
    channels, batch, size = options.size(512, 8), options.size(64, 2), options.size(28, 16)
    model = conv_net(channels, options.size(4, 1)).to(options.device, options.dtype)
    model = model.to(memory_format=torch.channels_last)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values = options.normal(batch, channels, size, size).to(memory_format=torch.channels_last)
    classes = options.choices(64, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
