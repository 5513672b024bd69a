"""CRC-32 of a sounding's tables, so that a flipped bit or a lost table is detected."""

from __future__ import annotations

import zlib
from pathlib import Path

from fathom.errors import NotASoundingError

_CHUNK = 1 << 20


def checksum(file: Path) -> int:
    """The file's CRC-32. Raises OSError."""
    value = 0
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK):
            value = zlib.crc32(chunk, value)
    return value


def require(file: Path, expected: int) -> None:
    """Raise NotASoundingError if the file is missing, unreadable or changed."""
    try:
        actual = checksum(file)
    except FileNotFoundError:
        raise NotASoundingError(f"{file} is missing from the sounding; record or import again.") from None
    except OSError as error:
        raise NotASoundingError(f"{file} cannot be read: {error.strerror}.") from None
    if actual != expected:
        raise NotASoundingError(f"{file} was damaged after it was written; record or import again.")
