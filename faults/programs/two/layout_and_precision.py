"""Train a convolutional net in float32 and in the layout that images come in.

Two faults: half of the bytes and of the rate of bfloat16 are given away, and maps are transposed around
convolutions.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, conv_net, start

FAULT = Fault(
    kind="kernels-no-mixed-precision",
    expected=["kernels-no-mixed-precision", "kernels-not-channels-last"],
    forbidden=["kernels-double-precision", "host-autotuning", "kernels-transposes"],
    severity=[2],
    share=[0.65],
    why="TF32 convolutions take 2.2 times as long as bfloat16's; transposes of 400 MB maps add a third",
    needs={"gpu": True},
    agree=5e-2,
)


def main(options):
    torch.backends.cudnn.allow_tf32 = True
    layout = torch.contiguous_format if options.faulty else torch.channels_last
    dtype = torch.float32 if options.faulty else options.dtype
    channels, batch, size = options.size(128, 8), options.size(64, 2), options.size(80, 16)
    model = conv_net(channels, options.size(5, 1)).to(options.device, dtype).to(memory_format=layout)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values = options.normal(batch, channels, size, size).to(dtype).to(memory_format=layout)
    classes = options.choices(64, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
