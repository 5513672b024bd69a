"""Train on small pictures that lie on the disk as large ones.

The user believes that resizing is part of loading. Every epoch decodes up to sixteen times as many pixels as
the model sees, on as many workers as the machine has; a copy shrunk once would do.
"""

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader

from faults.common import Fault, PatchNet, epochs, prefetched, start
from faults.files import Pictures, normalised, pictures, to_tensor

FAULT = Fault(
    kind="input-slow-decode",
    expected=["input-slow-decode"],
    forbidden=["input-too-few-workers", "input-collate", "input-storage-bound"],
    share=[0.4, 0.65, 0.8],
    why="decoding takes about 2.5, 6, 11 ms a picture: 64 on 12 workers take 13, 32, 58 ms, the device 8 ms",
    needs={"gpu": True, "cores": 14},
)


def shrunk(size):
    def transform(pixels):
        factor = pixels.shape[0] // size
        return to_tensor(pixels[::factor, ::factor])

    return transform


def main(options):
    size = options.size(160, 32)
    stored = size * options.by(2, 3, 4) if options.faulty else size
    data = Pictures(pictures(options.size(96, 8), stored), shrunk(size))
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
