"""How much a recording may still write: it leaves free space to the program, and keeps to `--max-size`."""

from __future__ import annotations

import errno

from fathom.pristine import os

FLOOR_BYTES, FLOOR_SHARE = 256 << 20, 0.05  # of a file system that stay free: the smaller of both
LARGEST_BURST = 48 << 20  # bytes of a trace
_MIB = 1 << 20


class NoRoomError(OSError):
    """Writing would exceed the limit; the message says which."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.ENOSPC, why)

    def __str__(self) -> str:
        return str(self.strerror)


class Room:
    """The space for a recording in `folder`; `most` bytes at most, None for no limit."""

    def __init__(self, folder: str, most: int | None = None) -> None:
        self._folder, self._most = folder, most

    def take(self, size: int) -> None:
        """Raise NoRoomError if `size` more bytes must not be written."""
        there = os.statvfs(self._folder)
        floor = min(FLOOR_BYTES, FLOOR_SHARE * there.f_blocks * there.f_frsize)
        if there.f_bavail * there.f_frsize - size < floor:
            raise NoRoomError(f"less than {floor / _MIB:.3g} MiB would stay free in {self._folder}")
        if self._most is not None and self.used() + size > self._most:
            raise NoRoomError(f"the recording reached --max-size ({self._most / 1e6:.4g} MB)")

    def used(self) -> int:
        """Return the bytes that all processes of the recording have written so far."""
        with os.scandir(self._folder) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
