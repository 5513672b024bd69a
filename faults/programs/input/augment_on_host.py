"""Blur and normalise whole batches on the processor, then send them as floats.

The user believes that preparing data belongs on the host. The device would do it in a fraction of a
millisecond, and four times fewer bytes would cross the link.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader

from faults.common import Fault, PatchNet, epochs, prefetched, start
from faults.files import normalised

FAULT = Fault(
    kind="input-cpu-preprocessing",
    expected=["input-cpu-preprocessing"],
    forbidden=["input-too-few-workers", "input-slow-decode", "input-storage-bound"],
    allowed=["input-pinning", "input-pageable-copy", "input-synchronous-copy", "input-slow-transform"],
    share=[0.4, 0.6, 0.85],
    why=(
        "converting and blurring 5 M numbers takes 8, 4, 1 threads about 6, 12, 45 ms, the device's step 8 ms"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


def blurred(images):
    kernel = torch.full((3, 1, 3, 3), 1 / 9, device=images.device, dtype=images.dtype)
    return F.conv2d(images, kernel, padding=1, groups=3)


def main(options):
    torch.set_num_threads(options.size(options.by(8, 4, 1), 1))  # as a launcher sets it for one process
    size, batch = options.size(160, 32), options.size(64, 4)
    data = [(torch.randint(256, (3, size, size), dtype=torch.uint8), n % 64) for n in range(4 * batch)]
    loader = DataLoader(data, batch, num_workers=options.size(4, 0), pin_memory=options.cuda)
    batches = list(loader)  # they fit in memory, so only the preparation is left
    model = PatchNet(options.size(4096, 64), options.size(8, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    source = epochs(batches) if options.faulty else prefetched(epochs(batches), options.device)
    for images, classes in options.laps(source):
        if options.faulty:
            images = blurred(normalised(images, torch.float32))
            images = images.to(options.device).to(options.dtype)
            classes = classes.to(options.device)
        else:
            images = blurred(normalised(images, options.dtype))
        loss = F.cross_entropy(model(images), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
