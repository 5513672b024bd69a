"""Batches of data loaders as the program receives them: waits, and the worker that made each."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.data import dataloader, get_worker_info

from fathom.pristine import time
from fathom.probe.faults import guarded
from fathom.probe.hooks.batch import about, size
from fathom.probe.hooks.patches import Patches, after, around, before
from fathom.probe.hooks.stages import PART, Stages, watch_fetchers, watch_pinning
from fathom.probe.session import Session
from fathom.probe.threads import native_id
from fathom.probe.trials.ahead import Ahead, LoaderState


def install(session: Session, patches: Patches) -> None:
    """Watch iterators in the program, and fetchers in whichever process they run."""
    stages = Stages()
    pinned: dict[int, int] = {}
    _watch_iterators(Deliveries(session, stages, pinned), patches)
    watch_fetchers(session, patches, stages)
    watch_pinning(patches, stages, pinned)


def _watch_iterators(deliveries: Deliveries, patches: Patches) -> None:
    base, many = dataloader._BaseDataLoaderIter, dataloader._MultiProcessingDataLoaderIter

    def timed(original: Any, iterator: Any) -> Any:
        start = deliveries.asked()
        data = deliveries.taken(iterator, original)
        deliveries.delivered(iterator, data, start)
        return data

    patches.wrap(base, "__init__", after(deliveries.started))
    patches.wrap(base, "_reset", after(deliveries.reset))
    patches.wrap(base, "__next__", around(timed))
    if deliveries.ahead is not None:
        deliveries.ahead.serve = functools.partial(_serve, deliveries.ahead, base)
    patches.wrap(many, "_process_data", before(deliveries.received))


def _serve(ahead: Ahead, base: Any) -> None:
    """Deliver the batches fetched ahead even after the recording has ended or continued in a fork."""
    patches = Patches()

    def remaining(original: Any, iterator: Any) -> Any:
        data = ahead.next(iterator, original, LoaderState(-1))
        if not ahead.pending:
            patches.undo()
        return data

    patches.wrap(base, "__next__", around(remaining))
    patches.wrap(base, "_reset", before(lambda iterator, *_, **__: ahead.reset(iterator)))


class Iterators:
    """Holds the state of each loader's iterator, without keeping the iterator alive."""

    def __init__(self) -> None:
        self._numbers: Any = weakref.WeakKeyDictionary()
        self._of: Any = weakref.WeakKeyDictionary()
        self._count = 0

    def started(self, iterator: Any, loader: Any) -> None:
        """Register a new iterator over `loader`."""
        if loader not in self._numbers:
            self._numbers[loader] = self._count
            self._count += 1
        self._register(iterator, self._numbers[loader], weakref.ref(loader))

    def _register(self, iterator: Any, number: int, of: Callable[[], Any] | None = None) -> None:
        self._of[iterator] = LoaderState(number, of=of)

    def known(self, iterator: Any) -> LoaderState:
        """Return the iterator's state, or that of loader -1 if it is unknown."""
        return self._of.get(iterator) or LoaderState(-1)

    def of(self, iterator: Any) -> LoaderState:
        """Return the iterator's state; an earlier one is registered now, as the only one of its loader."""
        if iterator not in self._of:
            self._register(iterator, self._count)
            self._count += 1
        return self._of[iterator]


def _loader_of(iterator: Any) -> Any:
    """Return facts of a loader, under its names, from its iterator, which is all that a `for` loop keeps."""
    names = ("dataset", "num_workers", "collate_fn")
    facts = {name: getattr(iterator, f"_{name}", None) for name in names}
    return SimpleNamespace(**facts, batch_size=getattr(iterator._index_sampler, "batch_size", None))


class Deliveries:
    """Reports what happens to the iterators of this process to the session."""

    def __init__(self, session: Session, stages: Stages, pinned: dict[int, int]) -> None:
        self.session, self.stages, self.pinned = session, stages, pinned
        self.iterators = Iterators()
        self.described: set[int] = set()
        ahead = session.trials.get("input")
        self.ahead = ahead if isinstance(ahead, Ahead) else None

    @guarded(PART)
    def started(self, iterator: Any, loader: Any) -> None:
        """Register that `iterator` begins its first epoch."""
        self.iterators.started(iterator, loader)
        self.session.facts.epoch(self.iterators.of(iterator).loader)

    @guarded(PART)
    def reset(self, iterator: Any, loader: Any, first_iter: bool = False) -> None:
        """Count another epoch of `iterator`, which has persistent workers."""
        state = self.iterators.of(iterator)
        state.epoch, state.made = state.epoch + 1, {}
        if self.ahead is not None:
            self.ahead.reset(iterator)
        if not first_iter:
            self.session.facts.epoch(state.loader)

    @guarded(PART)
    def received(self, iterator: Any, data: Any, worker: int) -> None:
        """Note that the next batch in order, made by `worker`, has arrived."""
        state = self.iterators.of(iterator)
        nth = state.made.get(worker, 0)
        state.made[worker] = nth + 1
        state.last = (worker, iterator._workers[worker].pid, nth)
        self.stages.pin = self.pinned.pop(id(data), None)

    @guarded(PART)
    def asked(self) -> int:
        """Start timing a batch that the program requests; return the time in ns."""
        start = time.time_ns()
        self.stages.forget()
        return start

    def taken(self, iterator: Any, original: Any) -> Any:
        """Return the next batch, from those fetched ahead by a trial if any."""
        if self.ahead is None or get_worker_info() is not None:
            return original(iterator)
        return self.ahead.next(iterator, original, self.iterators.known(iterator))

    @guarded(PART)
    def delivered(self, iterator: Any, data: Any, start: int) -> None:
        """Record the delivery of a batch that the program requested at `start`."""
        if get_worker_info() is not None:
            return
        state, session = self.iterators.of(iterator), self.session
        end = time.time_ns()
        if state.loader not in self.described:
            self._describe(iterator, state, data)
        samples, tokens = size(data)
        session.signal("loader", state.loader, grad=torch.is_grad_enabled())
        session.facts.batch(state.loader, end, samples, tokens)
        session.batch(self._row(state, start, end - start))
        state.batch += 1

    @guarded(PART)
    def _describe(self, iterator: Any, state: LoaderState, data: Any) -> None:
        """Describe the loader, once."""
        self.described.add(state.loader)
        loader = state.of() if state.of is not None else None
        known = _loader_of(iterator) if loader is None else loader
        self.session.say(about(state.loader, known, data))

    def _row(self, state: LoaderState, start: int, wait: int) -> tuple[Any, ...]:
        """Return a row in the order of BATCH_COLUMNS."""
        worker, pid, nth = state.take() or (None, None, None)
        at = (state.loader, state.epoch, state.batch, worker, pid, nth)
        stages = self.stages
        made = (stages.fetch, stages.collate, stages.pin, stages.read, stages.decode, stages.read_bytes)
        return (*at, native_id(), start, wait, *made)
