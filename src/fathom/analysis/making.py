"""Iterators that make the loop's batches in the loop's own thread, found in sampled stacks.

The model's work gives the trunk: the frames above calls of modules, optimizers and the backward pass. A
sample belongs to the input if its stack leaves the trunk into an iterator of the program or of a data
library. That iterator is a `__next__` or a generator that lives between steps (`probe/frames/iterators.py`).
Generators that run the model are part of the trunk. Where this is not clear, nothing is found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable

import msgspec
import polars as pl

PASSING = 0.95  # of its samples: an iterator that is above another one so often makes nothing itself

Names = tuple[tuple[str, str], ...]  # function and file of each frame, outermost first

# Modules, optimizers, the backward pass, compiled code.
_WORK = re.compile(
    r"_call_impl \([^;]*/torch/nn/modules/module\.py:|/torch/optim/"
    r"|/torch/(autograd/(__init__|graph|function)|_tensor|_dynamo/eval_frame|amp/grad_scaler)\.py:"
)
_TRANSFORMS = re.compile(r"/(torchvision|torchaudio)/transforms/|/kornia/augmentation/|/albumentations/")
# In files, and in frames like `function (file:line)`.
LIBRARY = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3[^/]*/|(^| \()<frozen|/fathom/probe/")
_DATA = re.compile(
    r"/(site|dist)-packages/(datasets|webdataset|wids|streaming|litdata|ray/data|nvidia/dali|torchdata"
    r"|torchvision/datasets|deeplake|petastorm|ffcv|tfrecord|monai/data|tensorflow_datasets|grain)/"
)
_HOOKED = re.compile(r"/torch/utils/data/(dataloader|_utils)")  # hooks time these waits
_FRAME = re.compile(r"^(?P<function>.*) \((?P<file>.*):(?P<line>\d+)\)$", re.S)


class Making(msgspec.Struct, frozen=True):
    """The iterator that makes a batch in one stack: its `function (file:line)`, and the program's line."""

    detail: str
    source: str


class _Frame(msgspec.Struct, frozen=True):
    text: str
    function: str
    file: str
    line: str

    @property
    def library(self) -> bool:
        return bool(LIBRARY.search(self.file))

    @property
    def feeds(self) -> bool:
        """Whether it belongs to the program or to a library that makes batches."""
        return not self.library or bool(_DATA.search(self.file))

    @property
    def place(self) -> str:
        return f"{self.function} ({self.file.rpartition('/')[2]}:{self.line})"


class _Iterator(msgspec.Struct, frozen=True):
    name: tuple[str, str]
    making: Making


def makers(stacks: pl.DataFrame) -> dict[str, Making]:
    """Return the iterator that makes a batch, by the text of the stack; other stacks are left out.

    `stacks` has the columns `stack` and `iterators` of all samples of one thread.
    """
    known = stacks.drop_nulls(["stack", "iterators"])
    counted = known.group_by("stack", maintain_order=True).agg(pl.col("iterators").first(), count=pl.len())
    parsed = [(text, _frames(text), set(places), count) for text, places, count in counted.rows()]
    trunk = _trunk(frames for _, frames, _, _ in parsed)
    chains = [(text, _iterators(frames, places, trunk), count) for text, frames, places, count in parsed]
    passing = _passing(chains)
    return {text: _maker(chain, passing) for text, chain, _ in chains if chain}


def _frames(stack: str) -> list[_Frame]:
    texts = [match for text in stack.split(";") if (match := _FRAME.match(text))]
    return [_Frame(m[0], m["function"], m["file"], m["line"]) for m in texts]


def _names(frames: Iterable[_Frame]) -> Names:
    return tuple((frame.function, frame.file) for frame in frames)


def _trunk(stacks: Iterable[list[_Frame]]) -> set[Names]:
    """Return the prefixes of stacks above the model's work."""
    trunk: set[Names] = set()
    for frames in stacks:
        first = next((i for i, frame in enumerate(frames) if _WORK.search(frame.text)), None)
        if first is not None and not any(_TRANSFORMS.search(frame.file) for frame in frames):
            names = _names(frames[:first])
            trunk |= {names[:length] for length in range(1, first + 1)}
    return trunk


def _iterators(frames: list[_Frame], iterators: Collection[int], trunk: set[Names]) -> list[_Iterator]:
    """Return the iterators into which the stack leaves the trunk, outermost first; empty if unclear."""
    names = _names(frames)
    left = next((i for i in range(len(frames)) if names[: i + 1] not in trunk), len(frames))
    below = frames[left:]
    if not left or any(_HOOKED.search(frame.file) for frame in below):
        return []
    chain: list[_Iterator] = []
    iterating = False
    for place, frame in enumerate(below, left):
        if place in iterators and frame.feeds:
            chain.append(_Iterator(names[place], Making(frame.place, _source(frames[: place + 1]))))
        iterating = iterating or place in iterators
        if frame.library and not iterating:
            return []  # a context manager, or a library that calls back
    return chain


def _passing(chains: list[tuple[str, list[_Iterator], int]]) -> set[tuple[str, str]]:
    """Return the functions that only pass on what other iterators make: they are nearly always above one."""
    every: Counter[tuple[str, str]] = Counter()
    above: Counter[tuple[str, str]] = Counter()
    for _, chain, count in chains:
        every.update({iterator.name: count for iterator in chain})
        above.update({iterator.name: count for iterator in chain[:-1]})
    return {name for name, count in above.items() if count >= PASSING * every[name]}


def _maker(chain: list[_Iterator], passing: set[tuple[str, str]]) -> Making:
    return next((iterator.making for iterator in chain if iterator.name not in passing), chain[-1].making)


def _source(frames: list[_Frame]) -> str:
    """Return the program's innermost line."""
    frame = next((frame for frame in reversed(frames) if not frame.library), frames[-1])
    return f"{frame.file}:{frame.line}"
