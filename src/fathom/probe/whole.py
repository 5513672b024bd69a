"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def whole(path: str) -> Iterator[str]:
    """A name to write under; what was written gets `path` at the end, unless writing failed."""
    part = path + ".part"
    yield part
    os.replace(part, path)
