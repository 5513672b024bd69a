"""Train a click model from a stream of log lines, through an IterableDataset."""

import json
import random
import tempfile
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from common import Clock, arguments
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

BUCKETS = 5000
FIELDS = 24
LINES = 8192
BATCH = 256


def write(folder: Path) -> None:
    """A day's log: as lines of JSON, and hashed once for all."""
    pick = random.Random(0)
    rows = [{f"field{i}": f"value{pick.randrange(900)}" for i in range(FIELDS)} for _ in range(LINES)]
    (folder / "log.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    np.save(folder / "hashed.npy", np.array([hashed(row) for row in rows]))


def hashed(row: dict[str, str]) -> list[int]:
    return [zlib.crc32(f"{field}={value}".encode()) % BUCKETS for field, value in row.items()]  # planted


class Hashed(IterableDataset):
    """Hashed lines, repeated, in whole batches; workers share them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        worker = get_worker_info()
        first, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        fields = torch.from_numpy(np.load(self.folder / "hashed.npy"))
        while True:
            for batch in islice(fields.split(BATCH), first, None, stride):
                yield batch, (batch[:, 0] % 2).float()


class Clicks(IterableDataset):
    """The log again and again; workers share its lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __iter__(self) -> Iterator[tuple[Tensor, float]]:
        worker = get_worker_info()
        first, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        while True:
            for fields in islice(self.rows(), first, None, stride):
                yield torch.tensor(fields), float(fields[0] % 2)

    def rows(self) -> Iterator[list[int]]:
        with (self.folder / "log.jsonl").open() as lines:
            for line in lines:
                yield hashed(json.loads(line))  # planted


class Model(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BUCKETS, width)
        self.head = nn.Sequential(nn.Linear(FIELDS * width, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, fields: Tensor) -> Tensor:
        return self.head(self.embedding(fields).flatten(1))[:, 0]


def main() -> None:
    options = arguments(__doc__, steps=150)
    clock, model = Clock(options.times), Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        if options.fault:
            loader = DataLoader(Clicks(Path(name)), batch_size=BATCH, num_workers=options.workers)
        else:
            loader = DataLoader(Hashed(Path(name)), batch_size=None, num_workers=options.workers)
        for fields, clicked in islice(loader, options.steps):
            loss = nn.functional.binary_cross_entropy_with_logits(model(fields), clicked.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.tick()


if __name__ == "__main__":
    main()
