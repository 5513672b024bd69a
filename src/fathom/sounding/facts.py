"""Typed facts about a rank, kept in the manifest: data loaders, and counts of the compiler."""

from __future__ import annotations

import msgspec

COMPILER, LOADERS = "compiler", "loaders"  # keys of `Rank.facts`


class Place(msgspec.Struct, omit_defaults=True):
    """A frame by file, line and function name; null if unknown."""

    file: str | None = None
    line: int | None = None  # of the break; for a frame that was given up, the function's first line
    function: str | None = None
    why: str | None = None
    at: tuple[str, int] | None = None  # for a frame that was given up, where it broke


class Counted(msgspec.Struct):
    """Counts of Dynamo: `frames` became `graphs`; `breaks` are within these, `given_up` frames have none."""

    frames: int
    graphs: int = 0
    reasons: list[tuple[str, int]] = []  # reasons for breaks and frames given up, with counts
    breaks: list[Place] = []
    given_up: list[Place] = []


class LoaderFacts(msgspec.Struct, omit_defaults=True):
    """One data loader; null if unknown.

    `context` is how its workers start (fork, spawn, forkserver). `tensors` and `bytes` are those of its first
    batch, `threads` those of torch in the training process. `items` says whether its data set fetches whole
    batches (`__getitems__`). `source` and `collate_source` are the first lines of the program's data set and
    collate function, as file:line.
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
