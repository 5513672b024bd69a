"""CRC-32 of a sounding's tables: a flipped bit must not become a figure, nor a lost table an empty one."""

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
    """Raises NotASoundingError where the file is missing, unreadable or not what was written."""
    try:
        found = checksum(file)
    except FileNotFoundError:
        raise NotASoundingError(f"{file} is missing from the sounding; record or import again.") from None
    except OSError as error:
        raise NotASoundingError(f"{file} cannot be read: {error.strerror}.") from None
    if found != expected:
        raise NotASoundingError(f"{file} is damaged since it was written; record or import again.")
