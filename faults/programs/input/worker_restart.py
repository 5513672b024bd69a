"""Train on a small data set for many epochs.

The user believes that workers live as long as the DataLoader. They are started anew for every epoch, and the
device waits for the first batch each time; `persistent_workers=True` keeps them.
"""

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader

from faults.common import Fault, PatchNet, epochs, prefetched, start
from faults.files import Pictures, normalised, pictures

FAULT = Fault(
    kind="input-worker-restart",
    expected=["input-worker-restart"],
    forbidden=["input-too-few-workers", "input-slow-decode", "input-storage-bound"],
    share=[0.4, 0.6, 0.75],
    why="starting 8 workers and ending the old ones takes about 150 ms, spread over 20, 12, 6 steps of 10 ms",
    needs={"gpu": True, "cores": 10},
    agree=1e-3,
)


def main(options):
    batch = options.size(32, 4)
    batches = options.size(options.by(20, 12, 6), 4)
    data = Pictures(pictures(options.size(256, 8), options.size(160, 32)), length=batch * batches)
    loader = DataLoader(
        data,
        batch,
        num_workers=options.size(8, 1),
        pin_memory=options.cuda,
        persistent_workers=not options.faulty,
    )
    model = PatchNet(options.size(4096, 64), options.size(14, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for images, classes in options.laps(prefetched(epochs(loader), options.device)):
        loss = F.cross_entropy(model(normalised(images, options.dtype)), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
