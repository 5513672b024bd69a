"""Time the stages of each batch in whichever process and thread makes it: fetch, collate, pin.

`read` and `decode` are parts of fetch; `read_bytes` are the bytes read during it. Workers also report torch's
number of threads, and how long they waited for a processor while ready to run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils import fetch, pin_memory

from fathom.pristine import time
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, after, around
from fathom.probe.hooks.reading import Decoding, read, read_since, ready, ready_since, used, watch_decoders
from fathom.probe.session import Session
from fathom.probe.threads import Local

PART = "watching data loaders"
FREQUENT = 64  # at surface depth, every batch is timed at first, and one in n / FREQUENT of n batches later
MOST_PINNED = 1000  # batches whose time is kept until it is read


class Stages(Local):
    """Durations in ns for this thread's current batch; `used` is `reading.used` when collation began.

    `read_bytes` is not a duration but the bytes read during the fetch.
    """

    fetch: int | None = None
    read: int | None = None
    read_bytes: int | None = None
    decode: int | None = None
    collate: int | None = None
    pin: int | None = None
    used: int | None = None
    depth = 0
    timed = True  # whether the batch that this thread makes is timed

    def forget(self) -> None:
        """Clear all durations, because another batch begins."""
        self.fetch = self.read = self.decode = self.collate = self.pin = self.used = self.read_bytes = None


def watch_fetchers(session: Session, patches: Patches, stages: Stages) -> None:
    """Time every fetch of a batch. Workers report it at once, because the main process cannot see it."""
    making = Making(session, stages)
    watch_decoders(patches, making.decoding)
    patches.wrap(fetch._BaseDatasetFetcher, "__init__", after(making.created))
    patches.wrap(fetch._MapDatasetFetcher, "fetch", around(making.timed))
    patches.wrap(fetch._IterableDatasetFetcher, "fetch", around(making.timed))


class Making:
    """Times the batches that this process makes; a worker numbers them from 0 in each epoch."""

    def __init__(self, session: Session, stages: Stages) -> None:
        self.session, self.stages, self.decoding = session, stages, Decoding()
        self.epoch = self.nth = 0
        self._sparse = session.plan.depth == "surface"  # timing a batch costs more than the rest of its step
        self._made = self._due = 0

    @guarded(PART)
    def created(self, fetcher: Any, *args: Any, **kwargs: Any) -> None:
        """Count an epoch in a worker, unless the fetcher was created within another's fetch, by a dataset."""
        if get_worker_info() is not None and self.stages.depth == 0:
            self.epoch, self.nth = self.epoch + 1, 0
        fetcher.collate_fn = around(self._collate)(fetcher.collate_fn)

    def timed(self, original: Any, fetcher: Any, possibly_batched_index: Any) -> Any:
        """Time `fetch`, which is `original`."""
        stages = self.stages
        if stages.depth:
            return original(fetcher, possibly_batched_index)
        if not self._is_due():
            return self._untimed(original, fetcher, possibly_batched_index)
        before = self._begins()
        stages.depth = 1
        try:
            data = original(fetcher, possibly_batched_index)
        except StopIteration:
            raise
        except BaseException:
            self.nth += 1  # the program receives the error instead of a batch
            raise
        finally:
            stages.depth, stages.decode, self.decoding.ns = 0, self.decoding.ns, None
        self._fetched(before)
        return data

    def _is_due(self) -> bool:
        number, self._made = self._made, self._made + 1
        if self._sparse and number < self._due:
            return False
        self._due = number + 1 + number // FREQUENT
        return True

    def _untimed(self, original: Any, fetcher: Any, index: Any) -> Any:
        stages = self.stages
        stages.depth, stages.timed = 1, False
        try:
            return original(fetcher, index)
        finally:
            stages.depth, stages.timed = 0, True
            self.nth += 1

    @guarded(PART)
    def _begins(self) -> tuple[Any, ...]:
        """Return time, time used, bytes read and time ready before a fetch."""
        self.stages.collate = self.stages.used = None
        self.decoding.ns = 0
        return time.time_ns(), used(), read(), ready()

    def _collate(self, original: Any, data: Any) -> Any:
        stages = self.stages
        if not stages.timed:
            return original(data)
        start = time.time_ns()
        stages.used = self._used()
        try:
            return original(data)
        finally:
            stages.collate = time.time_ns() - start

    @guarded(PART)
    def _used(self) -> int | None:
        return used()

    @guarded(PART)
    def _fetched(self, begun: tuple[Any, ...] | None) -> None:
        if begun is None:
            return
        stages, (start, before, bytes_before, ready_before) = self.stages, begun
        stages.read_bytes = read_since(bytes_before)
        waited = ready_since(ready_before)  # before the clock is read: within the time of the fetch
        stages.fetch = time.time_ns() - start - (stages.collate or 0)
        after = used() if stages.used is None else stages.used
        if before is not None and after is not None:
            stages.read = min(max(stages.fetch - (after - before), 0), stages.fetch)
        worker = get_worker_info()
        if worker is None:
            return
        row = {"t": "batch", "worker": worker.id, "epoch": self.epoch, "nth": self.nth, "start": start}
        row |= {name: getattr(stages, name) for name in ("fetch", "read", "decode", "collate", "read_bytes")}
        delays = {"threads": torch.get_num_threads(), "cpu_wait": waited}
        self.session.say({**row, **delays})
        self.session.records.flush()
        self.nth += 1


def watch_pinning(patches: Patches, stages: Stages, pinned: dict[int, int]) -> None:
    """Time the pinning of every batch, which runs in its own thread: `pinned` maps batch ids to times."""
    inside = Local()

    def timed(original: Any, data: Any, device: Any = None) -> Any:
        if getattr(inside, "yes", False):  # it calls itself for every part of a batch
            return original(data, device)
        start, inside.yes = time.time_ns(), True
        try:
            result = original(data, device)
        finally:
            inside.yes = False
        stages.pin = time.time_ns() - start
        if len(pinned) < MOST_PINNED:
            pinned[id(result)] = stages.pin
        return result

    patches.wrap(pin_memory, "pin_memory", around(timed))
