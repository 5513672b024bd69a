"""Let cuDNN search for its fastest kernels, and feed it pictures of ever new sizes.

The user believes that `cudnn.benchmark = True` makes convolutions faster. For every new size it times many
kernels first, and each size comes only once or twice; one padded size is searched once.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, conv_net, start

FAULT = Fault(
    kind="host-autotuning",
    expected=["host-autotuning"],
    forbidden=["kernels-not-channels-last", "host-launch-bound", "host-compiling-in-steps"],
    # Compiled, one kernel makes the gradients of a mean and the last activation: 9 % predicted and measured.
    allowed=["host-cuda-malloc", "framework-not-compiled"],
    share=[0.7, 0.85, 0.92],
    why="a search takes about 100 ms for the three passes of one shape, in every 8th, 4th, 2nd step of 5 ms",
    needs={"gpu": True},
)


def main(options):
    torch.backends.cudnn.benchmark = True
    batch, channels, most = options.size(32, 2), options.size(128, 8), options.size(128, 24)
    every = options.by(8, 4, 2)
    model = conv_net(channels, options.size(4, 1)).to(options.device, options.dtype)
    model = model.to(memory_format=torch.channels_last)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    classes = options.choices(64, batch)
    for number in options.laps():
        size = most - number // every if options.faulty else most
        images = options.normal(batch, channels, size, most).to(memory_format=torch.channels_last)
        loss = F.cross_entropy(model(images), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
