"""Data loaders as the probe saw them: the fact `loaders` of the manifest."""

from __future__ import annotations

import msgspec

FACT = "loaders"


class Loader(msgspec.Struct, omit_defaults=True):
    """One data loader; null: not known.

    `context`: how its workers start (fork, spawn, forkserver). `tensors` and `bytes`: of its first batch.
    `items`: its data set fetches whole batches (`__getitems__`). `threads`: torch's threads in the training
    process. `source` and `collate_source`: first line of the program's data set and collate function, as
    file:line.
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
