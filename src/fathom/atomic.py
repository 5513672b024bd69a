"""Atomic file writes. Programs that are recorded load this, so it imports little."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield a temporary name; the file is renamed to `path` at the end, or removed if writing failed."""
    part = f"{os.fspath(path)}.part"
    try:
        yield part
        os.replace(part, path)  # noqa: PTH105 - pathlib takes a millisecond to load
    except BaseException:
        with suppress(OSError):
            os.unlink(part)  # noqa: PTH108
        raise
