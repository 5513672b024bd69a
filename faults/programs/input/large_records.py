"""Train on short excerpts of large records that no page cache holds.

The user believes that only what is used is read. Each sample loads its whole record of megabytes and keeps 64
KB of it; the excerpts lie at a known place and could be read alone. Pages are dropped after reading, as they
would be of a data set larger than memory.
"""

import os

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader, Dataset

from faults.common import Fault, epochs, prefetched, start, tower
from faults.files import records

FAULT = Fault(
    kind="input-storage-bound",
    expected=["input-storage-bound"],
    forbidden=["input-slow-decode", "input-slow-transform", "input-collate"],
    allowed=["input-too-few-workers"],
    share=[0.3, 0.6, 0.8],
    why="32 records of 1, 2, 4 MB a step from a disk of about 3 GB/s take 11, 21, 43 ms; the device needs 6",
    needs={"gpu": True, "cores": 6},
    agree=1e-3,
)


class Excerpts(Dataset):
    def __init__(self, files, total, length):
        self.files, self.whole, self.length = files, total, length

    def __len__(self):
        return 1 << 16

    def __getitem__(self, index):
        file = os.open(self.files[index % len(self.files)], os.O_RDONLY)
        data = os.read(file, 1 << 30 if self.whole else self.length)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
        return torch.from_numpy(np.frombuffer(data[: self.length], np.uint8).copy())


def main(options):
    length = options.size(1 << 16, 1 << 10)
    files = records(options.size(128, 4), options.size(options.by(1, 2, 4) << 20, 1 << 13))
    loader = DataLoader(
        Excerpts(files, options.faulty, length),
        options.size(32, 2),
        num_workers=options.size(4, 1),
        pin_memory=options.cuda,
        persistent_workers=True,
        collate_fn=lambda samples: (torch.stack(samples),),
    )
    features, width = 256, options.size(4096, 64)
    model = torch.nn.Sequential(
        torch.nn.Linear(features, width, bias=False), *tower(width, options.size(5, 1))
    )
    model.to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for (data,) in options.laps(prefetched(epochs(loader), options.device)):
        values = data.view(-1, features)
        loss = F.cross_entropy(model(values.to(options.dtype) / 256), values[:, 0].long() % 64)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
