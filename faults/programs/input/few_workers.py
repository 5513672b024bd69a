"""Train on JPEG files, "with worker processes".

The user believes that a few workers keep the device busy. Decoding takes each worker longer than the device
takes for a batch divided by the workers, so the device waits for pictures in every step.
"""

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader

from faults.common import Fault, PatchNet, epochs, prefetched, start
from faults.files import Pictures, normalised, pictures

FAULT = Fault(
    kind="input-too-few-workers",
    expected=["input-too-few-workers"],
    forbidden=["input-slow-decode", "input-storage-bound", "input-collate", "host-launch-bound"],
    share=[0.35, 0.65, 0.85],
    why=(
        "a batch costs about 50 ms of decoding; 4, 2, 1 workers give one every 13, 25, 50 ms, the device "
        "needs 8"
    ),
    needs={"gpu": True, "cores": 14},
    agree=1e-3,
)


def main(options):
    workers = options.by(4, 2, 1) if options.faulty else 12
    data = Pictures(pictures(options.size(256, 8), options.size(160, 32)))
    loader = DataLoader(
        data,
        options.size(64, 4),
        num_workers=min(workers, options.size(16, 1)),
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
