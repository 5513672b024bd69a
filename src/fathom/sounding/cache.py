"""What was derived from a sounding, kept in the user's cache: made on the first read, found on later ones.

A sounding never changes, so an entry is named by its content, what it is, and the version of what made it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from fathom.machine.store import HOME
from fathom.sounding.store import MANIFEST, Store

MOST_BYTES = 512 << 20


def folder() -> Path:
    """Where it is kept: `$FATHOM_HOME/cache`, else the platform's cache folder."""
    if HOME in os.environ:
        return Path(os.environ[HOME]) / "cache"
    import platformdirs

    return platformdirs.user_cache_path("fathom")


def kept(store: Store, what: str, version: str, make: Callable[[], bytes]) -> bytes:
    """What `make` returns, from the cache where this version of it was made of this sounding before.

    `what` names it and is part of a file's name. A cache that cannot be read or written costs time alone.
    """
    content = hashlib.sha256((store.path / MANIFEST).read_bytes()).hexdigest()[:32]
    file = folder() / f"{content}-{what}-{version}"
    with contextlib.suppress(OSError):
        data = file.read_bytes()
        os.utime(file)  # the least recently used go first
        return data
    data = make()
    with contextlib.suppress(OSError):
        _write(file, data)
        _shrink(file.parent)
    return data


def _write(file: Path, data: bytes) -> None:
    """Write all of it or nothing: others may read at the same time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=file.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as sink:
            sink.write(data)
        Path(part).replace(file)
    except OSError:
        Path(part).unlink(missing_ok=True)
        raise


def _shrink(cache: Path) -> None:
    """Remove the least recently used until MOST_BYTES are left."""
    files = sorted((one for one in cache.iterdir() if one.is_file()), key=lambda one: -one.stat().st_mtime)
    size = 0
    for one in files:
        size += one.stat().st_size
        if size > MOST_BYTES:
            one.unlink(missing_ok=True)
