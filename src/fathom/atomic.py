"""Atomic file writes. Recorded programs load this module, so it imports little."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield a temporary name to write to; at the end it is renamed to `path`, or removed after an error."""
    part = f"{os.fspath(path)}.part"
    try:
        yield part
        os.replace(part, path)  # noqa: PTH105 - pathlib takes a millisecond to load
    except BaseException:
        with suppress(OSError):
            os.unlink(part)  # noqa: PTH108
        raise
