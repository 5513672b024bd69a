"""A cache of computed results in the user's cache folder, keyed by the content they were made from.

    key = cache.key("examination", manifest_bytes, options)   # includes a hash of Fathom's code
    data = cache.read(key)                                     # None: absent, damaged, or cache disabled
    cache.write(key, data)

An entry may disappear at any time, and a failed read or write raises nothing. `FATHOM_NO_CACHE=1` disables
the cache; `FATHOM_CACHE_DIR` replaces the platform's cache folder. The least recently used entries are
evicted once the total exceeds MOST_BYTES.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import zlib
from functools import cache as once
from hashlib import sha256
from pathlib import Path

from fathom.version import VERSION

MOST_BYTES = 256 << 20
LARGEST = 64 << 20  # per entry
ENDING = ".kept"


def key(what: str, *parts: bytes | str | float | None) -> str:
    """Return a key that starts with `what` and is equal only for equal `parts` and equal code."""
    digest = sha256()
    for part in (what, VERSION, _code(), *parts):
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return f"{what}-{digest.hexdigest()[:32]}"


def is_on() -> bool:
    """Return whether the cache is enabled."""
    return os.environ.get("FATHOM_NO_CACHE", "") in ("", "0")


def read(name: str) -> bytes | None:
    """Return the data stored under the key `name`; None if there is none or it is damaged."""
    folder = _folder()
    if folder is None:
        return None
    file = folder / (name + ENDING)
    try:
        data = file.read_bytes()
    except OSError:
        return None
    body = data[4:]
    if len(data) < 4 or zlib.crc32(body) != int.from_bytes(data[:4], "little"):
        with contextlib.suppress(OSError):
            file.unlink()
        return None
    with contextlib.suppress(OSError):
        os.utime(file)  # marks the entry as recently used
    return body


def write(name: str, data: bytes) -> None:
    """Store `data` under the key `name` atomically; data larger than LARGEST is not stored."""
    folder = _folder()
    if folder is None or len(data) > LARGEST:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=folder, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(zlib.crc32(data).to_bytes(4, "little") + data)
            Path(part).replace(folder / (name + ENDING))
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
        _bound(folder)
    except OSError:
        return


def _bound(folder: Path) -> None:
    """Evict the least recently used entries until the total is at most MOST_BYTES."""
    entries = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            facts = entry.stat()
            entries.append((facts.st_mtime, facts.st_size, entry.path))
    size = sum(bytes_ for _, bytes_, _ in entries)
    for _, bytes_, path in sorted(entries):
        if size <= MOST_BYTES:
            return
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108
        size -= bytes_


def _folder() -> Path | None:
    """Return the cache folder; None if the cache is disabled."""
    if not is_on():
        return None
    if named := os.environ.get("FATHOM_CACHE_DIR"):
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_cache_dir("fathom"))


@once
def _code() -> str:
    """Return a hash of Fathom's installed files, because a checkout may change without a new version."""
    stamp = sha256()
    for folder, folders, files in os.walk(Path(__file__).parent):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            facts = os.stat(os.path.join(folder, name))  # noqa: PTH116, PTH118
            stamp.update(f"{name} {facts.st_size} {facts.st_mtime_ns};".encode())
    return stamp.hexdigest()
