"""Train on JPEG files with the DataLoader's defaults.

The user believes that a DataLoader loads ahead. With num_workers=0 it decodes in the training process,
between two steps, while the device has nothing to do.
"""

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader

from faults.common import Fault, PatchNet, epochs, start
from faults.files import Pictures, normalised, pictures

FAULT = Fault(
    kind="input-too-few-workers",
    expected=["input-too-few-workers"],
    forbidden=["input-storage-bound", "host-python", "host-launch-bound"],
    severity=[2],
    share=[0.85],
    why="64 pictures of 0.8 ms each come between two steps of 8 ms",
    needs={"gpu": True, "cores": 14},
    agree=1e-3,
)


def main(options):
    data = Pictures(pictures(options.size(256, 8), options.size(160, 32)))
    how = {} if options.faulty else {"num_workers": options.size(12, 1), "persistent_workers": True}
    loader = DataLoader(data, options.size(64, 4), pin_memory=options.cuda, drop_last=True, **how)
    model = PatchNet(options.size(4096, 64), options.size(8, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for images, classes in options.laps(epochs(loader)):
        images = images.to(options.device, non_blocking=True)
        classes = classes.to(options.device, non_blocking=True)
        loss = F.cross_entropy(model(normalised(images, options.dtype)), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
