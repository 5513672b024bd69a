"""
title: Tokens mapped into memory
saves: host time of reading and parsing
idea: >-
  A corpus that is tokenised once and stored as plain integers can be mapped: a sample is a slice of memory,
  and the page cache serves what was read before. A file of numbers in text is read and parsed again for
  every sample.
cost: >-
  Disk for the integers (two bytes a token for vocabularies below 65536), written once.
not_when: >-
  The data passes only once, the tokeniser changes all the time, or random reads go to storage that answers
  slowly: then read large shards in order.
shows:
  - what: input table, time to fetch a sample
    plain: reading and parsing
    tuned: a page fault at most
findings: [input-slow-decode, input-storage-bound]
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fathom.lab import Draw

ROWS, LENGTH, BATCH = 512, 256, 64


@cache
def _corpus() -> Path:
    """The same tokens in both forms, written once a process."""
    folder = Path(tempfile.gettempdir()) / f"fathom-lab-corpus-{os.getuid()}-{ROWS}x{LENGTH}"
    folder.mkdir(mode=0o700, exist_ok=True)
    tokens = np.random.default_rng(0).integers(0, 50000, (ROWS, LENGTH), dtype=np.uint16)
    for name, content in (
        ("tokens.bin", tokens.tobytes()),
        ("tokens.txt", "\n".join(" ".join(map(str, row)) for row in tokens).encode()),
    ):
        if not (folder / name).exists():
            _written(folder / name, content)
    return folder


def _written(path: Path, content: bytes) -> None:
    """Whole or not at all: several processes may write it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).replace(path)


def inputs(seed: int, device: str | None = None) -> tuple[str, Tensor]:
    return str(_corpus()), Draw(seed, "cpu").integers(0, ROWS, BATCH)


def plain(corpus: str, rows: Tensor) -> Tensor:
    lines = Path(corpus, "tokens.txt").read_text().splitlines()
    return torch.tensor([list(map(int, lines[row].split())) for row in rows.tolist()])


def tuned(corpus: str, rows: Tensor) -> Tensor:
    tokens = np.memmap(Path(corpus, "tokens.bin"), np.uint16, "r", shape=(ROWS, LENGTH))
    return torch.from_numpy(tokens[rows.numpy()].astype(np.int64))
