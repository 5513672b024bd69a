"""Train a convolutional net in the layout that images come in.

The user believes that layout is a detail. cuDNN's tensor core kernels want channels last, so maps and
gradients are transposed before and after most convolutions.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, conv_net, start

FAULT = Fault(
    kind="kernels-not-channels-last",
    expected=["kernels-not-channels-last"],
    forbidden=["kernels-transposes", "kernels-no-mixed-precision", "host-autotuning"],
    # Compiled, one kernel makes the gradients of a mean and the last activation: 8 % predicted and measured.
    allowed=["framework-not-compiled"],
    share=[0.3, 0.4, 0.5],
    why=(
        "transposes of maps of 200 MB, about 0.1 ms each way and pass, beside convolutions of 0.5, 0.25, "
        "0.15 ms"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


def main(options):
    layout = torch.contiguous_format if options.faulty else torch.channels_last
    channels, batch = options.size(options.by(256, 128, 64), 8), options.size(64, 2)
    size = options.size(options.by(56, 80, 112), 16)
    model = conv_net(channels, options.size(6, 1)).to(options.device, options.dtype).to(memory_format=layout)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values = options.normal(batch, channels, size, size).to(memory_format=layout)
    classes = options.choices(64, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
