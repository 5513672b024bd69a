"""Atomic file writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def whole(path: str) -> Iterator[str]:
    """Yield a temporary name; the file is renamed to `path` at the end unless writing failed."""
    part = path + ".part"
    yield part
    os.replace(part, path)
