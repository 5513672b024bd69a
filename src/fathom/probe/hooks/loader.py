"""Batches of data loaders: waits in the program, and the stages of each batch wherever it is made."""

from __future__ import annotations

import functools
import threading
import time
import weakref
from typing import Any

import torch
from torch.utils.data import dataloader, get_worker_info
from torch.utils.data._utils import fetch, pin_memory

from fathom.probe.faults import guarded
from fathom.probe.hooks.batch import size
from fathom.probe.hooks.patches import Patches
from fathom.probe.session import Session
from fathom.probe.threads import native_id

PART = "watching data loaders"


class Iterators:
    """What is known of each loader's iterator, without keeping it alive."""

    def __init__(self) -> None:
        self._numbers: Any = weakref.WeakKeyDictionary()
        self._of: Any = weakref.WeakKeyDictionary()
        self._count = 0

    def started(self, iterator: Any, loader: Any) -> None:
        """A new iterator over `loader`."""
        if loader not in self._numbers:
            self._numbers[loader] = self._count
            self._count += 1
        self._of[iterator] = {"loader": self._numbers[loader], "epoch": 0, "batch": 0, "made": {}}

    def of(self, iterator: Any) -> dict[str, Any]:
        """loader, epoch, batch (how many so far), made (worker: how many in this epoch), last."""
        return self._of[iterator]


class Stages(threading.local):
    """Durations of the batch that this thread is making, in ns."""

    fetch: int | None = None
    collate: int | None = None
    pin: int | None = None
    depth = 0


def install(session: Session, patches: Patches) -> None:
    """Watch iterators in the program, and fetchers in whichever process they run."""
    iterators, stages = Iterators(), Stages()
    pinned: dict[int, int] = {}
    _watch_iterators(session, patches, iterators, stages, pinned)
    _watch_fetchers(session, patches, stages)
    _watch_pinning(patches, stages, pinned)


def _watch_iterators(
    session: Session, patches: Patches, iterators: Iterators, stages: Stages, pinned: dict[int, int]
) -> None:
    base, many = dataloader._BaseDataLoaderIter, dataloader._MultiProcessingDataLoaderIter

    @guarded(PART)
    def started(iterator: Any, loader: Any) -> None:
        iterators.started(iterator, loader)
        session.facts.epoch(iterators.of(iterator)["loader"])

    @guarded(PART)
    def reset(iterator: Any, loader: Any, first_iter: bool = False) -> None:
        state = iterators.of(iterator)
        state.update(epoch=state["epoch"] + 1, made={})
        if not first_iter:
            session.facts.epoch(state["loader"])

    @guarded(PART)
    def received(iterator: Any, data: Any, worker: int) -> None:
        state = iterators.of(iterator)
        nth = state["made"].get(worker, 0)
        state["made"][worker] = nth + 1
        state["last"] = (worker, iterator._workers[worker].pid, nth)
        stages.pin = pinned.pop(id(data), None)

    def counted_from(original: Any) -> Any:
        @functools.wraps(original)
        def __next__(self: Any) -> Any:  # noqa: N807
            start = time.time_ns()
            stages.fetch = stages.collate = stages.pin = None
            data = original(self)
            delivered(self, data, start)
            return data

        return __next__

    @guarded(PART)
    def delivered(iterator: Any, data: Any, start: int) -> None:
        if get_worker_info() is not None:
            return
        state = iterators.of(iterator)
        end = time.time_ns()
        samples, tokens = size(data)
        session.signal("loader", state["loader"], grad=torch.is_grad_enabled())
        session.facts.batch(state["loader"], end, samples, tokens)
        session.batches.append(_row(state, stages, start, end - start))
        state["batch"] += 1

    patches.wrap(base, "__init__", lambda original: _after(original, started))
    patches.wrap(base, "_reset", lambda original: _after(original, reset))
    patches.wrap(base, "__next__", counted_from)
    patches.wrap(many, "_process_data", lambda original: _before(original, received))


def _row(state: dict[str, Any], stages: Stages, start: int, wait: int) -> tuple[Any, ...]:
    """In the order of BATCH_COLUMNS."""
    worker, pid, nth = state.pop("last", (None, None, None))
    at = (state["loader"], state["epoch"], state["batch"], worker, pid, nth)
    return (*at, native_id(), start, wait, stages.fetch, stages.collate, stages.pin)


def _watch_fetchers(session: Session, patches: Patches, stages: Stages) -> None:
    made = {"epoch": 0, "nth": 0}

    @guarded(PART)
    def created(fetcher: Any, *args: Any, **kwargs: Any) -> None:
        if get_worker_info() is not None and stages.depth == 0:
            made.update(epoch=made["epoch"] + 1, nth=0)
        fetcher.collate_fn = _timed_collate(fetcher.collate_fn, stages)

    @guarded(PART)
    def fetched(start: int) -> None:
        stages.fetch = time.time_ns() - start - (stages.collate or 0)
        worker = get_worker_info()
        if worker is None:
            return
        session.say(
            {
                "t": "batch",
                "worker": worker.id,
                "epoch": made["epoch"],
                "nth": made["nth"],
                "start": start,
                "fetch": stages.fetch,
                "collate": stages.collate,
            }
        )
        session.records.flush()
        made["nth"] += 1

    def timed(original: Any) -> Any:
        @functools.wraps(original)
        def fetch(self: Any, possibly_batched_index: Any) -> Any:
            if stages.depth:
                return original(self, possibly_batched_index)
            start, stages.collate, stages.depth = time.time_ns(), None, 1
            try:
                data = original(self, possibly_batched_index)
            except StopIteration:
                raise
            except BaseException:
                made["nth"] += 1  # the program is sent the error in place of a batch
                raise
            finally:
                stages.depth = 0
            fetched(start)
            return data

        return fetch

    patches.wrap(fetch._BaseDatasetFetcher, "__init__", lambda original: _after(original, created))
    patches.wrap(fetch._MapDatasetFetcher, "fetch", timed)
    patches.wrap(fetch._IterableDatasetFetcher, "fetch", timed)


def _timed_collate(original: Any, stages: Stages) -> Any:
    @functools.wraps(original)
    def collate(data: Any) -> Any:
        start = time.time_ns()
        try:
            return original(data)
        finally:
            stages.collate = time.time_ns() - start

    return collate


def _watch_pinning(patches: Patches, stages: Stages, pinned: dict[int, int]) -> None:
    inside = threading.local()

    def timed(original: Any) -> Any:
        @functools.wraps(original)
        def pin(data: Any, device: Any = None) -> Any:
            if getattr(inside, "yes", False):  # it calls itself for every part of a batch
                return original(data, device)
            start, inside.yes = time.time_ns(), True
            try:
                result = original(data, device)
            finally:
                inside.yes = False
            stages.pin = time.time_ns() - start
            if len(pinned) < 1000:
                pinned[id(result)] = stages.pin
            return result

        return pin

    patches.wrap(pin_memory, "pin_memory", timed)


def _after(original: Any, then: Any) -> Any:
    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        then(self, *args, **kwargs)
        return result

    return wrapper


def _before(original: Any, first: Any) -> Any:
    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        first(self, *args, **kwargs)
        return original(self, *args, **kwargs)

    return wrapper
