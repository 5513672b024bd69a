"""Train on JPEG files: twelve lasting workers, pinned batches of bytes, copies ahead of their use."""

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader

from faults.common import Fault, PatchNet, epochs, prefetched, start
from faults.files import Pictures, normalised, pictures

FAULT = Fault(
    kind=None,
    severity=[2],
    why="twelve workers make a batch in 5 ms, the device takes 12 ms for it",
    needs={"gpu": True, "cores": 14},
)


def main(options):
    data = Pictures(pictures(options.size(256, 8), options.size(160, 32)))
    loader = DataLoader(
        data,
        options.size(64, 4),
        num_workers=options.size(12, 1),
        pin_memory=options.cuda,
        persistent_workers=True,
        prefetch_factor=4,
        drop_last=True,
    )
    model = PatchNet(options.size(4096, 64), options.size(12, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for images, classes in options.laps(prefetched(epochs(loader), options.device)):
        loss = F.cross_entropy(model(normalised(images, options.dtype)), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
