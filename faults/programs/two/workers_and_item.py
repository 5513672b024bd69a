"""Train on JPEG files with one worker, and read the norm of every gradient.

Two faults: the device waits for pictures in every step, and once for each parameter after the backward pass.
The second is small beside the first.
"""

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader

from faults.common import Fault, PatchNet, epochs, prefetched, start
from faults.files import Pictures, normalised, pictures

FAULT = Fault(
    kind="input-too-few-workers",
    expected=["input-too-few-workers"],
    forbidden=["input-slow-decode", "host-python", "host-launch-bound"],
    allowed=["host-sync-item"],
    severity=[2],
    share=[0.8],
    why=(
        "25 ms for a batch by two workers against 8; ten waits of 40 us, hidden behind it, would cost 5 % "
        "without it"
    ),
    needs={"gpu": True, "cores": 14},
    agree=1e-3,
)


def main(options):
    data = Pictures(pictures(options.size(256, 8), options.size(160, 32)))
    loader = DataLoader(
        data,
        options.size(64, 4),
        num_workers=options.size(2 if options.faulty else 12, 1),
        pin_memory=options.cuda,
        persistent_workers=True,
        drop_last=True,
    )
    model = PatchNet(options.size(4096, 64), options.size(8, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    history = []
    for images, classes in options.laps(prefetched(epochs(loader), options.device)):
        loss = F.cross_entropy(model(normalised(images, options.dtype)), classes)
        loss.backward()
        if options.faulty:
            history.append(sum(p.grad.norm().item() ** 2 for p in model.parameters()) ** 0.5)
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
