"""Augment pictures in the workers with a loop over rows.

The user believes that what happens in workers is free. A transform in Python costs ten times the decoding,
and twelve workers together no longer make a batch in the time of a step; one vectorised expression does the
same.
"""

import numpy as np
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader

from faults.common import Fault, PatchNet, epochs, prefetched, start
from faults.files import Pictures, normalised, pictures, to_tensor

FAULT = Fault(
    kind="input-slow-transform",
    expected=["input-slow-transform"],
    forbidden=["input-slow-decode", "input-collate", "input-storage-bound"],
    allowed=["input-cpu-preprocessing"],
    share=[0.3, 0.6, 0.75],
    why=(
        "a pass over 480 rows in Python costs about 2 ms; 64 pictures on 12 workers: 12, 22, 37 ms of a "
        "step of 8"
    ),
    needs={"gpu": True, "cores": 14},
    agree=1e-3,
)


def brightened_by_rows(pixels, passes):
    for _ in range(passes):
        bright = np.empty(pixels.shape, np.float64)
        for row in range(pixels.shape[0]):
            for channel in range(3):
                bright[row, :, channel] = np.clip(pixels[row, :, channel].astype(np.float64) * 1.1, 0, 255)
    return bright.astype(np.uint8)


def brightened(pixels):
    table = np.clip(np.arange(256) * 1.1, 0, 255).astype(np.uint8)
    return table[pixels]


class Brighten:
    def __init__(self, passes):
        self.passes = passes

    def __call__(self, pixels):
        return to_tensor(brightened_by_rows(pixels, self.passes) if self.passes else brightened(pixels))


def main(options):
    transform = Brighten(options.by(1, 2, 4) if options.faulty else 0)
    data = Pictures(pictures(options.size(256, 8), options.size(160, 32)), transform)
    loader = DataLoader(
        data,
        options.size(64, 4),
        num_workers=options.size(12, 1),
        pin_memory=options.cuda,
        persistent_workers=True,
        drop_last=True,
    )
    model = PatchNet(options.size(4096, 64), options.size(8, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for images, classes in options.laps(prefetched(epochs(loader), options.device)):
        loss = F.cross_entropy(model(normalised(images, options.dtype)), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
