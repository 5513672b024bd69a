"""Orders of the phases: stretches to record, what to do at a mark, and the common schedule of the ranks.

The first rank of a host publishes the schedule, and the others read it. If it runs no steps, as a parameter
server does, the first rank that does takes over.
"""

from __future__ import annotations

import dataclasses
import mmap
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fathom.atomic import atomic_write
from fathom.pristine import json, open, os, time
from fathom.probe.inherited import SCHEDULE, variables
from fathom.probe.launchers import task
from fathom.probe.process import number, rank

LATE = 40  # steps of a rank: one that has not begun by then runs none
LEAD = 4  # steps between a decision and its effect, so that every rank can read it in time
SLOT, SIZE = 8, 4096  # bytes of a rank's step, and of the file


@dataclass(frozen=True)
class Job:
    """One stretch for a recorder to watch: `windows` complete steps of one phase."""

    phase: str
    windows: int
    keep_above_ns: int | None = None  # keep the burst only if one of its steps is at least this long
    stacks: bool = False
    ops: bool = False  # in a timeline: also record the framework's ops, because no attribution burst follows
    group: int = 0  # counters to sample every `interval_ns`; `last`: the last burst with counters
    interval_ns: int = 0
    last: bool = False


@dataclass(frozen=True)
class Orders:
    """The orders at a mark, and the label of the step that opens there. Equal orders are the same object."""

    phase: str
    burst: int
    stop: Job | None = None
    arm: Job | None = None
    start: Job | None = None


class Schedule:
    """`schedule.json`: when it was written, a list of [step, job or null], and the leader's `resettled`.

    If each rank has a separate Fathom, and so a separate folder, `FATHOM_SCHEDULE` is their common file. It
    may be that of an earlier run: appointments from before this process started do not count.
    """

    def __init__(self, raw: str) -> None:
        self._common = variables().get(SCHEDULE)
        self._path = self._common or os.path.join(raw, "schedule.json")
        self._began_ns = time.time_ns()
        self._seen: tuple[int, int] | None = None
        self._published: dict[int, Any] = {}
        self.resettled: int | None = None  # as the leading rank has it
        self.leads, self.lead = True, 0
        self.places: Places | None = None  # of the ranks of this host, if there are several
        self.join()

    def join(self) -> None:
        """Find out whether other ranks on this host record too, and which rank leads.

        Launchers that do not say how many ranks a host has, like Lightning's, start at least one: the
        process group then has the number of all ranks.
        """
        here = task()
        local_rank = here.local_rank if here else number("LOCAL_RANK")
        local_world = here.local_world if here else number("LOCAL_WORLD_SIZE")
        count, own = local_world or 1, local_rank or 0
        if local_world is None and local_rank is not None:
            count = rank()[2] or 1
        shared = count > 1
        self.leads = not shared or own == 0
        self.lead = 0 if not shared else LEAD if self.leads else -1
        if shared and self.places is None:
            self.places = Places(f"{self._path}.places", own, count)

    def takes_over(self, k: int) -> bool:
        """Lead from step k on if no rank before this one runs steps; return whether that is new."""
        if self.lead >= 0 or k < LATE or self.places is None or not self.places.is_first():
            return False
        self.leads, self.lead = True, LEAD
        return True

    def publish(self, appointments: dict[int, Job | None], resettled: int | None = None) -> None:
        """Add new appointments atomically."""
        new = {k: job for k, job in appointments.items() if k not in self._published}
        if self.lead <= 0 or not (new or resettled != self.resettled):
            return
        self.resettled = resettled
        self._published.update({k: job and dataclasses.asdict(job) for k, job in new.items()})
        with atomic_write(self._path) as part, open(part, "w", encoding="utf-8") as file:
            listed = sorted(self._published.items())
            json.dump({"ns": time.time_ns(), "appointments": listed, "resettled": resettled}, file)

    def news(self) -> dict[int, Job | None]:
        """Return the appointments that the leading rank has made since the last call."""
        if self.leads:
            return {}
        try:
            status = os.stat(self._path)
            if self._seen == (status.st_mtime_ns, status.st_ino):
                return {}
            self._seen = (status.st_mtime_ns, status.st_ino)
            with open(self._path, encoding="utf-8") as file:
                listed = json.load(file)
        except FileNotFoundError:
            return {}
        if self._common and listed["ns"] < self._began_ns:
            return {}
        self.resettled = listed["resettled"]
        fresh = {k: job for k, job in listed["appointments"] if k not in self._published}
        self._published.update(fresh)
        return {k: Job(**job) if job else None for k, job in fresh.items()}


class Places:
    """The steps of `count` ranks in the file `path`, of which this process is rank `own` on this host.

    Hosts of ranks run ahead of their devices, and so of a rank whose host is late, by as many steps as fit
    into the devices' queues. What the leading rank decides has to lie ahead of all of them. Where the file
    cannot be shared, nothing is known of the other ranks.
    """

    def __init__(self, path: str, own: int, count: int) -> None:
        self._own = own
        self._at = slice(SLOT * own, SLOT * (own + 1))
        self._steps: mmap.mmap | None = None
        self._count = min(count, SIZE // SLOT)
        if own < self._count:
            with suppress(OSError):
                self._steps = _shared(path)
        self.put(0)  # an earlier run may have left its own

    def put(self, step: int) -> None:
        """Tell the other ranks which step is open here."""
        if self._steps is not None:
            self._steps[self._at] = step.to_bytes(SLOT, "little")

    def furthest(self) -> int:
        """Return the latest step that is open on any rank; 0 if unknown."""
        if self._steps is None:
            return 0
        return max(memoryview(self._steps).cast("q")[: self._count])

    def is_first(self) -> bool:
        """Return whether no rank before this one is in a step; False if unknown."""
        return self._steps is not None and not any(memoryview(self._steps).cast("q")[: self._own])


def _shared(path: str) -> mmap.mmap:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(file, SIZE)
        return mmap.mmap(file, SIZE)
    finally:
        os.close(file)
