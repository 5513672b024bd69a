"""What data loaders are, as the probe saw them: the fact `loaders` of the manifest."""

from __future__ import annotations

import msgspec

FACT = "loaders"


class Loader(msgspec.Struct, omit_defaults=True):
    """One data loader; what is null was not known.

    `context` is how its workers start (fork, spawn, forkserver). `tensors` and `bytes` are of its first
    batch. `items`: its data set fetches whole batches (`__getitems__`). `threads` are those that torch
    computes with in the process that trains. `source` and `collate_source` are where the program's own code
    of the data set and of the collate function begins, as file:line.
    """

    loader: int
    dataset: str = ""
    iterable: bool = False
    items: bool = False
    workers: int = 0
    context: str | None = None
    batch_size: int | None = None
    tensors: int | None = None
    bytes: int | None = None
    threads: int | None = None
    source: str | None = None
    collate_source: str | None = None
