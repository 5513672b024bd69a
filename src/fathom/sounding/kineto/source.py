"""Read a trace file, plain or gzipped, in blocks of bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from isal import igzip_threaded
from isal.igzip_lib import IsalError

from fathom.errors import BadInputError

BLOCK = 1 << 19  # bytes; fits into the CPU's cache, where decoding is twice as fast
_AHEAD = 1 << 21  # bytes decompressed at once: enough work while the decoder has the GIL
_GZIP = b"\x1f\x8b"
_BROKEN: Any = (EOFError, IsalError, zlib.error, OSError)


class TraceSource:
    """Iterate over a file in blocks; gzipped files are decompressed on a separate thread."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                packed = file.read(2) == _GZIP
        except OSError as error:
            raise BadInputError(f"{self.path} cannot be read: {error.strerror}.") from None
        try:
            with self._open(packed) as stream:
                while block := stream.read(BLOCK):
                    yield block
        except _BROKEN as error:
            raise self.bad(_reason(error, packed)) from None

    def _open(self, packed: bool) -> BinaryIO:
        if not packed:
            return self.path.open("rb")
        return cast(BinaryIO, igzip_threaded.open(self.path, "rb", threads=1, block_size=_AHEAD))

    def bad(self, why: str) -> BadInputError:
        """Return the error for a file that cannot be imported."""
        return BadInputError(f"{self.path} cannot be imported: {why}.")


def _reason(error: Exception, packed: bool) -> str:
    if not packed:
        return f"it could not be read to its end ({error})"
    if isinstance(error, EOFError):
        return "its gzip stream is cut off; copy or record it again"
    return f"its gzip stream is damaged ({error}); copy or record it again"
