"""Read a file of JSON lines while another process appends to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from fathom.units import MIB

CHUNK = 2 * MIB  # read at a time
LONGEST = 64 * MIB  # a longer line is not a record

Record = dict[str, Any]


class Follower:
    """Returns the records that were appended to `path` since the last call, complete lines only.

    If the file was replaced or became shorter, `restarted` is true until the next call, which begins with
    the new file's first record. Damaged lines are counted in `torn`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn = 0
        self.restarted = False
        self._inode: int | None = None
        self._offset = 0
        self._rest = b""

    def records(self) -> Iterator[Record]:
        """Yield the new records; none if the file does not exist yet or no longer."""
        with suppress(OSError), self.path.open("rb", buffering=0) as file:
            self._check(os.fstat(file.fileno()))
            file.seek(self._offset)
            while data := file.read(CHUNK):
                self._offset += len(data)
                yield from self._decoded(data)

    def _check(self, status: os.stat_result) -> None:
        self.restarted = self._inode is not None and (
            status.st_ino != self._inode or status.st_size < self._offset
        )
        if self.restarted:
            self._offset, self._rest = 0, b""
        self._inode = status.st_ino

    def _decoded(self, data: bytes) -> Iterator[Record]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST:
            self._rest, self.torn = b"", self.torn + 1
        for line in filter(None, lines):
            try:
                record = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                record = None
            if isinstance(record, dict):
                yield record
            else:
                self.torn += 1
