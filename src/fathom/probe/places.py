"""The open step of every rank of a host, which the ranks share in a small file.

Hosts of ranks run ahead of their devices, and so of a rank whose host is late, by as many steps as fit into
the devices' queues. What the leading rank decides has to lie ahead of all of them.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

from fathom.pristine import os

SLOT, SIZE = 8, 4096  # bytes of a rank's step, and of the file


class Places:
    """The steps of `count` ranks in the file `path`, of which this process is rank `own` on this host.

    Where the file cannot be shared, nothing is known of the other ranks.
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
