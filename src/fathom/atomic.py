"""Atomic file writes. Recorded programs load this module, so it imports little."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EINVAL

from fathom.pristine import open, os


def private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file that only this user may read, if it is new: an `opener` for `open`."""
    return os.open(path, flags, 0o600)


def create_private(path: str | os.PathLike[str]) -> None:
    """Create or empty a file; only this user may read a new one, also after others have written to it."""
    os.close(private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC))


def write_private(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file that only this user may read."""
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield a private file to write to; at the end it is renamed to `path`, or removed after an error.

    Each writer gets a separate file, so that two may write `path` at once: the last one wins. Raises OSError
    if there is a device or a pipe, which would be replaced too.
    """
    path = os.path.realpath(path) if os.path.islink(path) else os.fspath(path)
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise OSError(EINVAL, "it is not a regular file", path)
    part = f"{path}.{os.urandom(4).hex()}.part"
    create_private(part)
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
