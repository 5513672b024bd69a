"""Pad sequences in the collate function, as lists of Python numbers.

The user believes that collating is a detail. It happens once a batch in one process, where no worker can
help, and every number becomes a Python object on its way into the tensor.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader, Dataset

from faults.common import Fault, epochs, prefetched, start, tower

FAULT = Fault(
    kind="input-collate",
    expected=["input-collate"],
    forbidden=["input-slow-transform", "input-slow-decode", "input-storage-bound"],
    allowed=["input-too-few-workers"],
    share=[0.4, 0.65, 0.8],
    why=(
        "64 sequences of 2,048 take about 12 ms a field as lists; two workers make a batch every 6, 12, "
        "24 ms, the device needs 4"
    ),
    needs={"gpu": True, "cores": 4},
    agree=1e-3,
)


class Sequences(Dataset):
    def __init__(self, length):
        self.tokens = np.random.default_rng(0).integers(1, 64, (256, length))

    def __len__(self):
        return 1 << 16

    def __getitem__(self, index):
        return self.tokens[index % len(self.tokens)]


class Collate:
    def __init__(self, length, fields):
        self.length, self.fields = length, fields

    def __call__(self, samples):
        if not self.fields:
            return (torch.from_numpy(np.stack(samples)),)
        for _ in range(self.fields):  # tokens, mask, positions, labels
            rows = [sample.tolist() for sample in samples]
            padded = [row + [0] * (self.length - len(row)) for row in rows]
            mask = [[token != 0 for token in row] for row in padded]
            tokens, _ = torch.tensor(padded), torch.tensor(mask)
        return (tokens,)


def main(options):
    length = options.size(2048, 32)
    loader = DataLoader(
        Sequences(length),
        options.size(64, 4),
        num_workers=options.size(2, 1),
        pin_memory=options.cuda,
        persistent_workers=True,
        collate_fn=Collate(length, options.by(1, 2, 4) if options.faulty else 0),
    )
    width = options.size(1024, 32)
    model = nn.Sequential(nn.Embedding(64, width), *tower(width, options.size(4, 1)))
    model.to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for (tokens,) in options.laps(prefetched(epochs(loader), options.device)):
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
