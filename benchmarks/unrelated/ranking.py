"""Train a ranker of a shop's feed: how likely an impression is to be clicked, and its item to be bought.

Workers parse lines of a log, join them with what users did before and with photographs (patches, quantised to
bytes), and hash all names. A frozen encoder of the patches feeds the ranker of `ranker.py`.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from ranker import COUNTRY, DENSE, EVENTS, OF_EVENT, PATCH, SINGLE, Encoder, Ranker, Size
from stopwatch import Stopwatch, arguments
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, Dataset

FAULTS = ("batches", "segments", "interactions", "optimizer", "frozen", "width")
FULL = Size(
    batch=8192,
    rows=(4_000_000, 3_000_000, 500_000, 20_000, 60, 1_500_000, *[40_000] * 22),
    width=128,
    encoder=1024,
    blocks=4,
    deep=(4096, 2048, 512),
)
SMALL = Size(batch=32, rows=(200,) * SINGLE, width=8, encoder=16, blocks=1, deep=(16, 8))
NEVER = 1 << 24  # hours since an event that did not happen


# data


@dataclass(frozen=True)
class Batch:
    ids: Tensor  # (batch, columns), rows of the table
    hours: Tensor  # (batch, events), since each
    dense: Tensor  # (batch, numbers)
    patches: Tensor  # (batch, patches, values), as bytes
    labels: Tensor  # (batch, 2), clicked and bought

    def to(self, device: str) -> Batch:
        return Batch(*(getattr(self, field.name).to(device, non_blocking=True) for field in fields(self)))


class PinnedBatch(Batch):
    """Tensors that the loader's thread can pin."""

    def pin_memory(self) -> Batch:
        return Batch(*(getattr(self, field.name).pin_memory() for field in fields(self)))


def popular(chance: np.random.Generator, count: int, *shape: int) -> np.ndarray:
    """Numbers below `count`, of which few make most of the traffic."""
    return (count * chance.random(shape) ** 2).astype(np.int32)


def write_log(file: Path, lines: int, names: tuple[int, ...]) -> None:
    """Clicked, bought, counts (empty where there are none) and names, of which there are so many of each."""
    chance = np.random.default_rng(0)
    counts = (np.exp(4 * chance.random((lines, DENSE))) * chance.integers(0, 9, (lines, DENSE))).astype(int)
    clicked = chance.random(lines) < 0.05 + 0.1 * (counts[:, 0] > 20)
    bought = clicked & (chance.random(lines) < 0.1)
    ids = np.stack([popular(chance, count, lines) for count in names], 1)
    with file.open("w") as out:
        for click, buy, numbers, named in zip(clicked, bought, counts.tolist(), ids.tolist(), strict=True):
            words = [f"{click:d}", f"{buy:d}", *(str(n or "") for n in numbers), *map("{:x}".format, named)]
            out.write("\t".join(words) + "\n")


def write_history(file: Path, users: int, names: list[int]) -> None:
    """Recent activity of each user: names in (users, parts, events), and last how many hours ago."""
    chance = np.random.default_rng(1)
    hours = np.sort(chance.integers(0, 2000, (users, EVENTS), np.int32), 1)
    hours[np.arange(EVENTS) >= chance.integers(EVENTS // 4, EVENTS + 1, (users, 1))] = NEVER
    np.save(file, np.stack([*(popular(chance, count, users, EVENTS) for count in names), hours], 1))


def write(folder: Path, size: Size, lines: int, users: int, items: int) -> None:
    write_log(folder / "impressions.tsv", lines, (users, items, *size.rows[2:]))
    write_history(folder / "history.npy", users, [size.rows[table] for table in OF_EVENT])
    photographs = np.random.default_rng(2).integers(0, 256, (items, *PATCH), np.uint8)
    np.save(folder / "photographs.npy", photographs)


def parsed(lines: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, counts and names of lines."""
    rows = [line.split(b"\t") for line in lines]
    labels = np.array([[int(word) for word in row[:2]] for row in rows], np.float32)
    counts = np.array([[int(word or 0) for word in row[2 : 2 + DENSE]] for row in rows], np.float32)
    names = np.array([[int(word, 16) for word in row[2 + DENSE :]] for row in rows], np.uint64)
    return labels, counts, names


class Impressions(Dataset):
    """Whole batches, of the lines that are asked for."""

    def __init__(self, folder: Path, size: Size, fault: str) -> None:
        self.log = np.memmap(folder / "impressions.tsv", np.uint8, mode="r")
        self.ends = np.flatnonzero(self.log == ord("\n"))
        self.starts = np.concatenate([[0], self.ends[:-1] + 1])
        self.history = np.load(folder / "history.npy", mmap_mode="r")
        self.photographs = np.load(folder / "photographs.npy", mmap_mode="r")
        self.rows, self.offsets = (np.array(column, np.uint64) for column in size.columns())
        self.missing = size.dense(fault) - DENSE
        self.batch = Batch if fault == "batches" else PinnedBatch

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, chosen: np.ndarray) -> Batch:
        lines = [self.log[self.starts[i] : self.ends[i]].tobytes() for i in chosen]
        labels, counts, names = parsed(lines)
        users, items = names[:, 0].astype(np.int64), names[:, 1].astype(np.int64)
        history = self.history[users]
        events = history[:, :-1].reshape(len(chosen), -1).astype(np.uint64)
        parts = (
            self.hashed(np.concatenate([names, events], 1)),
            history[:, -1].astype(np.float32),
            np.pad(np.log1p(counts), ((0, 0), (0, self.missing))),
            self.photographs[items],
            labels,
        )
        return self.batch(*map(torch.from_numpy, parts))

    def hashed(self, names: np.ndarray) -> np.ndarray:
        """Rows of the table, of (batch, columns) names."""
        mixed = (names + self.offsets) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
        return (mixed % self.rows + self.offsets).astype(np.int64)


# training


class Calibration:
    """Impressions, predicted and observed clicks by country, over the whole run."""

    def __init__(self, countries: int, device: str) -> None:
        self.sums = torch.zeros(countries, 3, device=device)

    def update(self, country: Tensor, predicted: Tensor, clicked: Tensor) -> None:
        rows = torch.stack([torch.ones_like(predicted), predicted, clicked], 1)
        self.sums.index_add_(0, country, rows)

    def update_each(self, country: Tensor, predicted: Tensor, clicked: Tensor) -> None:
        for number in range(len(self.sums)):
            here = country == number
            said = [here.sum(), predicted[here].sum(), clicked[here].sum()]
            self.sums[number] += torch.stack(said)


class Trainer:
    def __init__(self, options, size: Size) -> None:
        self.device, fault = options.device, options.fault
        self.cuda = self.device.startswith("cuda")
        with torch.device(self.device):
            self.encoder = Encoder(size).to(torch.bfloat16 if self.cuda else torch.float32)
            self.model = Ranker(size, fault)
        if fault != "frozen":
            self.encoder.requires_grad_(False)
        fused = self.cuda and fault != "optimizer"
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=fused)
        self.first_country = size.offsets[COUNTRY]
        calibration = Calibration(size.rows[COUNTRY], self.device)
        self.calibrate = calibration.update_each if fault == "segments" else calibration.update

    def logits(self, batch: Batch) -> Tensor:
        """Of a click and of a purchase."""
        photographs = self.encoder(batch.patches)
        with torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.cuda):
            return self.model(batch.ids, batch.hours, batch.dense, photographs).float()

    def step(self, batch: Batch) -> Tensor:
        batch = batch.to(self.device)
        logits = self.logits(batch)
        loss = F.binary_cross_entropy_with_logits(logits, batch.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        country = batch.ids[:, COUNTRY] - self.first_country
        self.calibrate(country, logits.detach()[:, 0].sigmoid(), batch.labels[:, 0])
        return loss


def main() -> None:
    options = arguments(__doc__, FAULTS)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    size, logged, workers = (
        (SMALL, (200, 20, 10), 1) if options.small else (FULL, (50_000, 20_000, 10_000), 12)
    )
    trainer, watch = Trainer(options, size), Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), size, *logged)
        data = Impressions(Path(folder), size, options.fault)
        picks = np.random.default_rng(1).integers(len(data), size=(options.steps, size.batch))
        loader = DataLoader(data, None, sampler=list(picks), num_workers=workers, pin_memory=trainer.cuda)
        for batch in watch.laps(loader):
            loss = trainer.step(batch)
        watch.save(options, loss)


if __name__ == "__main__":
    main()
