"""The trial `input`: batches are fetched before the trial, so that none of its steps waits for one.

The program receives every batch once and in order. Repeating a batch would give the same measurement, but
lengthen the epoch: a learning-rate schedule with a fixed length would raise an error, and ranks deadlock.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from fathom.pristine import os
from fathom.probe.faults import guarded
from fathom.probe.trials.rounds import WARM
from fathom.probe.trials.trial import Trial, of_the_steps

MOST_BYTES = 2 << 30
MEMORY_SHARE = 0.25  # of the free memory
SHARED_SHARE = 0.5  # of the free shared memory, where workers put their batches
NO_LOADER = "in most steps no data loader delivered a batch"
OTHER_THREAD = "another thread than the stepping one takes batches from the loader"
STATEFUL = "the loader can save its state, which would miss the batches fetched ahead"
TOO_LARGE = "the batches of a trial would take too much of the free memory"


@dataclass
class LoaderState:
    """The state of an iterator of the loader with this number."""

    loader: int
    epoch: int = 0
    batch: int = 0  # count so far
    made: dict[int, int] = field(default_factory=dict)  # batches by worker
    last: tuple[int, int, int] | None = None  # worker, its process and its count, of the batch taken last
    of: Callable[[], Any] | None = None  # returns the loader while it lives

    def take(self) -> tuple[int, int, int] | None:
        """Return `last`, and forget it."""
        last, self.last = self.last, None
        return last


class Ahead(Trial):
    """Holds prefetched batches by iterator, each as (batch, exception, worker that made it)."""

    kind = "input"

    def __init__(self) -> None:
        super().__init__()
        self._ready: Any = WeakKeyDictionary()
        self._counts: Counter[int] = Counter()
        self._per_step: dict[int, int] = {}
        self._steps = self._usual = 0
        self._leads: list[int] = []
        self._watching = self._elsewhere = False
        self.serve: Callable[[], None] | None = None  # delivers the remaining batches without the hooks
        self._seen: Any = WeakKeyDictionary()  # iterators with workers

    def watch(self) -> None:
        self._counts.clear()
        self._leads.clear()
        self._watching, self._elsewhere = True, False

    def watched(self, steps: int) -> None:
        self._watching = False
        self._usual = sorted(self._leads)[(len(self._leads) - 1) // 2] if self._leads else 0
        self._per_step = {key: -(-n // steps) for key, n in self._counts.items() if 2 * n >= steps}

    def begin(self, steps: int) -> None:
        if not self._per_step:
            self.why = OTHER_THREAD if self._elsewhere else NO_LOADER
            return
        self._steps, self.open = steps + WARM + 1, True

    @property
    def settled(self) -> bool:
        """Whether all prefetched batches were delivered, and workers have only the usual number ready."""
        return not self.pending and all(_lead(iterator) <= self._usual for iterator in list(self._seen))

    @property
    def pending(self) -> bool:
        """Whether prefetched batches remain."""
        return any(self._ready.values())

    # calls of the hooks

    def reset(self, iterator: Any) -> None:
        """Drop the iterator's prefetched batches, because the program starts a new epoch."""
        self._ready.pop(iterator, None)

    def hand_over(self) -> None:
        """Arrange that prefetched batches still reach the program after the hooks are removed."""
        self.open = self._watching = False
        if self.pending and self.serve is not None:
            self.serve()

    def next(self, iterator: Any, original: Callable[[Any], Any], state: LoaderState) -> Any:
        """Return the next batch for the program, in order; `state` is the iterator's."""
        loader = state.loader
        ready = self._ready.get(iterator)
        if not ready and (self.open or self._watching):
            self._look(iterator, loader)
            if self.open and loader in self._per_step and of_the_steps():
                ready = self._ready[iterator] = deque()
                self._fetch(iterator, original, state, ready, self._steps * self._per_step[loader])
        if not ready:
            return original(iterator)
        batch, error, made = ready.popleft()
        if error is not None:
            raise error
        if made is not None:
            state.last = made
        return batch

    @guarded("fetching batches ahead")
    def _look(self, iterator: Any, loader: int) -> None:
        if hasattr(iterator, "state_dict"):
            self.why, self.open = STATEFUL, False
        if not self._watching:
            return
        if not of_the_steps():
            self._elsewhere = True
            return
        self._counts[loader] += 1
        self._seen[iterator] = True
        self._leads.append(_lead(iterator))

    def _fetch(self, iterator: Any, original: Any, state: LoaderState, ready: deque[Any], count: int) -> None:
        for _ in range(count):
            try:
                batch = original(iterator)
            except StopIteration:
                ready.append((None, StopIteration(), None))  # new: the caught one keeps the iterator
                return
            except Exception as error:  # raised later, when the program gets there
                ready.append((None, error, None))
                return
            ready.append((batch, None, state.take()))
            if len(ready) == 1 and not _fits(batch, count):
                self.why, self.open = TOO_LARGE, False
                return


def _lead(iterator: Any) -> int:
    """Return how many batches workers have ready; 0 if none or unknown."""
    queues = [getattr(iterator, name, None) for name in ("_data_queue", "_worker_result_queue")]
    try:
        waiting = sum(
            queue.qsize() for queue in {id(each): each for each in queues if each is not None}.values()
        )
        return waiting + sum(len(info) == 2 for info in getattr(iterator, "_task_info", {}).values())
    except Exception:
        return 0


@guarded("fetching batches ahead")
def _fits(batch: Any, count: int) -> bool:
    size: Counter[str] = Counter()
    _weigh(batch, size)
    return all(size[where] * count <= _room(where) for where in size)


def _room(where: str) -> float:
    """Return the bytes that batches may use at `where`."""
    if where == "host":
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return min(MOST_BYTES, MEMORY_SHARE * free)
    if where == "shared":
        there = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
        return MOST_BYTES if there is None else SHARED_SHARE * there.f_bavail * there.f_frsize
    free, _ = sys.modules["torch"].cuda.mem_get_info(where) if where.startswith("cuda") else (0, 0)
    return min(MOST_BYTES, MEMORY_SHARE * free)


def _weigh(batch: Any, size: Counter[str], depth: int = 4) -> None:
    """Add the bytes of a batch's arrays to `size`, separately for host, shared memory and each device."""
    if hasattr(batch, "untyped_storage") and batch.device.type != "cpu":
        size[str(batch.device)] += batch.nbytes
    elif isinstance(getattr(batch, "nbytes", None), int):
        size["host"] += batch.nbytes
        size["shared"] += batch.nbytes if hasattr(batch, "is_shared") and batch.is_shared() else 0
    elif isinstance(batch, (str, bytes, bytearray)):
        size["host"] += len(batch)
    elif depth:
        for part in parts(batch):
            _weigh(part, size, depth - 1)


def parts(batch: Any) -> list[Any]:
    """Return the parts of a batch: members, values or attributes."""
    if isinstance(batch, (list, tuple)):
        return list(batch)
    return list(batch.values() if isinstance(batch, Mapping) else getattr(batch, "__dict__", {}).values())
