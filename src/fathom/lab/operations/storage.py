"""Read samples from files.

    fathom lab run memory-mapped sharded-records

parsing reads numbers as text, memory_mapped takes them from mapped memory. file_by_file opens a file per
record; sharded_records reads many from one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fathom.lab import Draw

ROWS, LENGTH, BATCH = 512, 256, 64


@cache
def _folder(name: str, write: Callable[[Path], None]) -> Path:
    """Return a folder with the same data in both forms, written by the first process that needs it."""
    folder = Path(tempfile.gettempdir()) / f"fathom-lab-{name}-{os.getuid()}"
    if folder.exists():
        return folder
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        write(Path(made))
        _published(Path(made), folder)
    return folder


def _published(made: Path, folder: Path) -> None:
    """Move the folder into place atomically, because several processes may write it."""
    made.chmod(0o700)
    try:
        made.rename(folder)
        made.mkdir()  # for the temporary folder's end
    except OSError:
        if not folder.exists():
            raise


def _tokens(folder: Path) -> None:
    tokens = np.random.default_rng(0).integers(0, 50000, (ROWS, LENGTH), dtype=np.uint16)
    (folder / "tokens.bin").write_bytes(tokens.tobytes())
    (folder / "tokens.txt").write_text("\n".join(" ".join(map(str, row)) for row in tokens))


def token_rows(seed: int, device: str | None = None) -> tuple[str, Tensor]:
    return str(_folder(f"tokens-{ROWS}x{LENGTH}", _tokens)), Draw(seed, "cpu").integers(0, ROWS, BATCH)


def parsing(corpus: str, rows: Tensor) -> Tensor:
    lines = Path(corpus, "tokens.txt").read_text().splitlines()
    return torch.tensor([list(map(int, lines[row].split())) for row in rows.tolist()])


def memory_mapped(corpus: str, rows: Tensor) -> Tensor:
    """title: Map tokens into memory
    pair: {group: input, plain: parsing, inputs: token_rows}
    saves: host time of reading and parsing
    idea: A corpus that is tokenised once and stored as plain integers can be mapped. A sample is then a slice
      of memory, and the page cache serves repeated reads. A file of numbers as text is read and parsed for
      every sample.
    cost: Disk space for the integers (two bytes per token for vocabularies below 65536), written once.
    not_when: The data is read only once, the tokeniser changes all the time, or storage is slow at random
      reads (read large shards in order).
    shows:
      input table, time to fetch a sample: reading and parsing → a page fault at most
    tips: [data.memory-map]
    findings: {input-slow-decode: 5, input-storage-bound: 3}"""
    tokens = np.memmap(Path(corpus, "tokens.bin"), np.uint16, "r", shape=(ROWS, LENGTH))
    return torch.from_numpy(tokens[rows.numpy()].astype(np.int64))


RECORDS, LONGEST, MANY = 2048, 2048, 512


def _records(folder: Path) -> None:
    source = np.random.default_rng(0)
    records = [source.bytes(int(length)) for length in source.integers(256, LONGEST, RECORDS)]
    for number, record in enumerate(records):
        (folder / f"{number:06}.bin").write_bytes(record)
    (folder / "shard.bin").write_bytes(b"".join(records))
    np.save(folder / "ends.npy", np.cumsum([len(record) for record in records], dtype=np.int64))


def record_numbers(seed: int, device: str | None = None) -> tuple[str, Tensor]:
    folder = _folder(f"records-{RECORDS}x{LONGEST}", _records)
    return str(folder), Draw(seed, "cpu").integers(0, RECORDS - MANY + 1, 1)


def _of(record: bytes | memoryview) -> list[int]:
    """Return the features that the program computes from a record."""
    return [len(record), record[0], record[-1]]


def file_by_file(data: str, first: Tensor) -> Tensor:
    numbers = range(int(first), int(first) + MANY)
    return torch.tensor([_of(Path(data, f"{number:06}.bin").read_bytes()) for number in numbers])


def sharded_records(data: str, first: Tensor) -> Tensor:
    """title: Store records in shards
    pair: {group: input, plain: file_by_file, inputs: record_numbers}
    saves: calls of the file system, and seeks
    idea: A data set of many small files makes the file system look up, open and close one per sample, and the
      disk seek. A shard (a tar, or records behind an index) is opened once and read from front to back in
      large pieces. Samples are shuffled by shard and within a buffer.
    cost: The set is written a second time. Three calls per sample become one per piece. On remote storage
      each call is a round trip, so the gain is larger there than here, where everything is in the page cache.
    not_when: Samples are megabytes each, must be drawn at random from the whole set, or change individually.
    shows:
      input table, time to fetch a sample: look-up, open, read and close → a slice of memory
    tips: [data.shards]
    findings: {input-storage-bound: 1}"""
    start = int(first)
    ends = np.load(Path(data, "ends.npy"), mmap_mode="r")[max(start - 1, 0) : start + MANY].tolist()
    begins = ends if start else [0, *ends]
    with Path(data, "shard.bin").open("rb") as shard:
        shard.seek(begins[0])
        piece = memoryview(shard.read(begins[MANY] - begins[0]))
    at = [begin - begins[0] for begin in begins]
    return torch.tensor([_of(piece[begin:end]) for begin, end in pairwise(at)])
