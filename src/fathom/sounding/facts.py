"""Typed facts about a rank, stored in the manifest: its data loaders, and Dynamo's counts."""

from __future__ import annotations

import msgspec

COMPILER, LOADERS = "compiler", "loaders"  # keys of `Rank.facts`


class Place(msgspec.Struct, omit_defaults=True):
    """A frame at which Dynamo broke the graph, or that it gave up compiling; null fields are unknown."""

    file: str | None = None
    line: int | None = None  # line of the graph break; for a frame that was given up, its first line
    function: str | None = None
    why: str | None = None  # Dynamo's reason, on one line
    at: tuple[str, int] | None = None  # for a frame that was given up: file and line of the failure


class Counted(msgspec.Struct):
    """Dynamo's counts for one process."""

    frames: int  # frames that Dynamo tried to compile
    graphs: int = 0  # distinct graphs that it compiled
    reasons: list[tuple[str, int]] = []  # reasons for graph breaks and frames given up, with counts
    breaks: list[Place] = []  # graph breaks, after which the rest of the frame is compiled separately
    given_up: list[Place] = []  # frames without a compiled version


class LoaderFacts(msgspec.Struct, omit_defaults=True):
    """One data loader; null fields are unknown.

    `context` is the start method of its workers (fork, spawn, forkserver). `tensors` and `bytes` are the
    number of tensors and their total size in its first batch. `threads` is torch's number of threads in the
    training process. `items` is true if the dataset fetches whole batches (`__getitems__`). `source` and
    `collate_source` are the first lines of the program's dataset and collate function, as file:line.
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
