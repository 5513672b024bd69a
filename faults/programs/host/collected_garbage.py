"""Collect garbage in every few steps, "so that memory does not grow".

The user believes that a collection looks at garbage. It visits every object that the process holds, the
libraries' own and the data set's index, with the device idle; nothing here is cyclic, so it frees nothing.
"""

import gc

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-garbage-collection",
    expected=["host-garbage-collection"],
    forbidden=["host-python", "host-launch-bound", "host-empty-cache"],
    share=[0.45, 0.65, 0.85],
    why="torch and 200,000 index entries make a collection of about 40 ms; once in 8, 4, 1 steps of 5 ms",
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    width, batch, every = options.size(4096, 32), options.size(8192, 16), options.by(8, 4, 1)
    model = tower(width, options.size(4, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    _index = [{"file": number, "tags": [number]} for number in range(options.size(200_000, 100))]
    if not options.faulty:
        gc.collect()
        gc.freeze()  # the index and the libraries stay, so nobody need look at them again
    for number in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if options.faulty and number % every == 0:
            gc.collect()
    gc.unfreeze()
    return loss


if __name__ == "__main__":
    start(main)
