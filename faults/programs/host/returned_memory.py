"""Train a convolutional network on the processor, with the default allocator settings.

The user believes that memory which a step frees is there for the next one. glibc returns large blocks to the
operating system, and each page that the next step requests again costs a few microseconds.
"""

import ctypes
from contextlib import suppress

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import SGD

from faults.common import Fault, conv_net, start

FAULT = Fault(
    kind="host-page-faults",
    expected=["host-page-faults"],
    forbidden=["host-python", "input-too-few-workers", "kernels-double-precision"],
    allowed=["framework-not-compiled"],
    share=[0.1, 0.2, 0.25],
    why="activations of 8, 16 and 32 samples are freed and taken again: 3 us per page of 4 KiB",
    agree=1e-3,
)
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4  # parameters of mallopt


def keep_freed_memory():
    """Do as MALLOC_TRIM_THRESHOLD_, MALLOC_TOP_PAD_ and MALLOC_MMAP_MAX_ do from outside."""
    with suppress(AttributeError, OSError):  # another C library
        for parameter, value in ((TRIM_THRESHOLD, -1), (TOP_PAD, 16 << 20), (MMAP_MAX, 0)):
            ctypes.CDLL(None).mallopt(parameter, value)


def main(options):
    if not options.faulty:
        keep_freed_memory()
    channels, batch = options.size(32, 8), options.size(options.by(8, 16, 32), 2)
    side = options.size(64, 16)
    model = conv_net(channels, 4)
    optimizer = SGD(model.parameters(), lr=1e-4, momentum=0.9)
    images, classes = torch.randn(batch, channels, side, side), torch.randint(10, (batch,))
    for _ in options.laps():
        loss = F.cross_entropy(model(images), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
