"""
title: Records in a shard, not a file each
saves: calls of the file system, and seeks
idea: >-
  A data set of many small files asks the file system to look up, open and close one for every sample, and
  the disk to seek. A shard (a tar, or records behind an index) is opened once and read from front to back
  in large pieces; samples are shuffled by shard, and within a buffer.
cost: >-
  The set is written once more. Three calls a sample become one a piece. On remote storage each call is a
  round trip: there the factor is larger than here, where all is in the page cache.
not_when: >-
  Samples are megabytes each, must be drawn at random from the whole set, or change one by one.
shows:
  - what: input table, time to fetch a sample
    plain: look-up, open, read and close
    tuned: a slice of memory
findings: [input-storage-bound]
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fathom.lab import Draw

RECORDS, LONGEST, BATCH = 2048, 2048, 512


@cache
def _data() -> Path:
    """The same records in both forms, written once."""
    folder = Path(tempfile.gettempdir()) / f"fathom-lab-records-{os.getuid()}-{RECORDS}x{LONGEST}"
    if folder.exists():
        return folder
    source = np.random.default_rng(0)
    records = [source.bytes(int(length)) for length in source.integers(256, LONGEST, RECORDS)]
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        for number, record in enumerate(records):
            Path(made, f"{number:06}.bin").write_bytes(record)
        Path(made, "shard.bin").write_bytes(b"".join(records))
        ends = np.cumsum([len(record) for record in records], dtype=np.int64)
        np.save(Path(made, "ends.npy"), ends)
        _published(Path(made), folder)
    return folder


def _published(made: Path, folder: Path) -> None:
    """Whole or not at all: several processes may write it."""
    made.chmod(0o700)
    try:
        made.rename(folder)
        made.mkdir()  # for the temporary folder's end
    except OSError:
        if not folder.exists():
            raise


def inputs(seed: int, device: str | None = None) -> tuple[str, Tensor]:
    return str(_data()), Draw(seed, "cpu").integers(0, RECORDS - BATCH + 1, 1)


def _of(record: bytes | memoryview) -> list[int]:
    """What the program makes of a record."""
    return [len(record), record[0], record[-1]]


def plain(data: str, first: Tensor) -> Tensor:
    numbers = range(int(first), int(first) + BATCH)
    return torch.tensor([_of(Path(data, f"{number:06}.bin").read_bytes()) for number in numbers])


def tuned(data: str, first: Tensor) -> Tensor:
    start = int(first)
    ends = np.load(Path(data, "ends.npy"), mmap_mode="r")[max(start - 1, 0) : start + BATCH].tolist()
    begins = ends if start else [0, *ends]
    with Path(data, "shard.bin").open("rb") as shard:
        shard.seek(begins[0])
        piece = memoryview(shard.read(begins[BATCH] - begins[0]))
    at = [begin - begins[0] for begin in begins]
    return torch.tensor([_of(piece[begin:end]) for begin, end in pairwise(at)])
