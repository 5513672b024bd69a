"""Read files that may come from anyone: regular files only, and no more bytes than expected.

A FIFO or a terminal would block, and a device like /dev/zero has no end. The OSErrors raised here have a
`strerror` for people, like those of the operating system.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Any, BinaryIO

from fathom.units import GIB, MIB

DOCUMENT = 64 * MIB  # largest JSON document that is read whole: manifests, machine files
RECORDS = 4 * GIB  # largest file of raw records


def require_regular(path: str | os.PathLike[str]) -> int:
    """Return the file's size in bytes. Raises OSError if it is not a regular file."""
    return _size(os.stat(path), path, None)  # noqa: PTH116 - pathlib would be imported for nothing else


def open_regular(path: str | os.PathLike[str], most: int | None = None) -> BinaryIO:
    """Open a regular file of at most `most` bytes for reading. Raises OSError for anything else."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _size(os.fstat(file), path, most)
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def read_regular(path: str | os.PathLike[str], most: int = DOCUMENT) -> bytes:
    """Return the content of a regular file of at most `most` bytes. Raises OSError for anything else."""
    with open_regular(path, most) as file:
        data = file.read(most + 1)  # a file may grow after its size was read, and /proc states none
    if len(data) > most:
        raise _too_large(path, most)
    return data


def _size(facts: os.stat_result, path: str | os.PathLike[str], most: int | None) -> int:
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    if most is not None and facts.st_size > most:
        raise _too_large(path, most)
    return facts.st_size


def _too_large(path: str | os.PathLike[str], most: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {most / MIB:,.0f} MiB", os.fspath(path))


def decode(data: bytes) -> Any:
    """Decode JSON. Raises ValueError for anything else, including JSON that is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: str | os.PathLike[str], most: int = DOCUMENT) -> Any:
    """Return the JSON value in a regular file. Raises OSError and ValueError."""
    return decode(read_regular(path, most))
