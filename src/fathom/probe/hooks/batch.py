"""Describe a data loader and the size of its batches."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import IterableDataset

from fathom.pristine import os
from fathom.probe.trials.ahead import parts

TOKENS = "input_ids"
FETCHES = ("__getitems__", "__iter__", "__getitem__", "get")  # `get` is PyTorch Geometric's
LIBRARY = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep, os.sep + "torch" + os.sep)
DEEPEST, MOST = 6, 4096  # levels and parts of a batch that are examined


def size(data: Any, depth: int = 3, least: int = 1) -> tuple[int | None, int | None]:
    """Return (samples, tokens): the first tensor's first dimension, and the elements of `input_ids`.

    A tensor with fewer dimensions than `least` is not a batch of samples.
    """
    if isinstance(data, torch.Tensor):
        return (data.shape[0] if data.dim() >= least else None), None
    if depth == 0:
        return None, None
    if isinstance(data, Mapping):
        ids = data.get(TOKENS)
        if isinstance(ids, torch.Tensor) and ids.dim() == 2:
            return ids.shape[0], ids.numel()
        return size(next(iter(data.values()), None), depth - 1, least)
    if isinstance(data, (tuple, list)) and data:
        return size(data[0], depth - 1, least)
    return None, None


def about(number: int, loader: Any, data: Any) -> dict[str, object]:
    """Return the `loader` record."""
    dataset = getattr(loader, "dataset", None)
    tensors, size_bytes = contents(data)
    return {
        "t": "loader",
        "loader": number,
        "dataset": f"{type(dataset).__module__}.{type(dataset).__qualname__}",
        "iterable": isinstance(dataset, IterableDataset),
        "items": callable(getattr(dataset, "__getitems__", None)),
        "workers": int(getattr(loader, "num_workers", 0) or 0),
        "context": _context(loader),
        "batch_size": getattr(loader, "batch_size", None),
        "batches": None if isinstance(dataset, IterableDataset) else _length(loader),
        "tensors": tensors,
        "bytes": size_bytes,
        "threads": torch.get_num_threads(),
        "source": _place(type(dataset), FETCHES),
        "collate_source": _place_of(getattr(loader, "collate_fn", None)),
    }


def _length(loader: Any) -> int | None:
    """Return the number of batches of an epoch; None if it is unknown, as that of some samplers."""
    try:
        return len(loader)
    except Exception:
        return None


def _context(loader: Any) -> str | None:
    """Return the start method of workers; None if it is not set yet, because asking Python would set it."""
    context = getattr(loader, "multiprocessing_context", None)
    if context is None and (multiprocessing := sys.modules.get("multiprocessing")):
        return multiprocessing.get_start_method(allow_none=True)
    method = getattr(context, "get_start_method", None)
    return method() if callable(method) else None


def _place(kind: type, methods: tuple[str, ...]) -> str | None:
    """Return file:line of the first of these methods that the program, not a library, defines."""
    places = (_place_of(getattr(kind, name, None)) for name in methods)
    return next((place for place in places if place), None)


def _place_of(function: Any) -> str | None:
    """Return file:line of a function, method or callable object; None for a library's."""
    code = getattr(function, "__code__", None)
    if code is None and not isinstance(function, type):
        code = getattr(type(function).__dict__.get("__call__"), "__code__", None)
    if code is None or any(part in code.co_filename for part in LIBRARY):
        return None
    return f"{code.co_filename}:{code.co_firstlineno}"


def contents(data: Any) -> tuple[int, int]:
    """Count the tensors in a batch and their bytes, including attributes of objects such as graphs."""
    tensors = size = 0
    seen: set[int] = set()
    waiting = [(data, DEEPEST)]
    while waiting and len(seen) < MOST:
        value, depth = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            tensors, size = tensors + 1, size + value.numel() * value.element_size()
        elif depth and not isinstance(value, (str, bytes, int, float)):
            waiting += [(part, depth - 1) for part in parts(value)]
    return tensors, size
