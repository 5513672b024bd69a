"""Read the rows of a CSV file, in any encoding that a shell's `>` writes, with bounded memory."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO

from fathom.errors import file_errors, unimportable
from fathom.regular import open_regular

LONGEST = 16 << 20  # characters per line; a header of three thousand metrics has a few hundred thousand
_MOST_JOINED = 100  # most lines in one quoted text
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def head(path: Path, size: int = 4096) -> bytes:
    """Return the first `size` bytes of a file. Raises BadInputError if it cannot be read."""
    with file_errors(path), open_regular(path) as file:
        return file.read(size)


def encoding(start: bytes) -> str:
    """Return the encoding of a file from its first bytes; PowerShell's `>` writes UTF-16."""
    return next((name for mark, name in _MARKS.items() if start.startswith(mark)), "utf-8")


def read_lines(path: Path) -> Iterator[str]:
    """Yield the rows of a file; a row with an open quote continues on the next line. Raises BadInputError."""
    start = head(path)
    kind = encoding(start)
    if kind == "utf-8" and b"\0" in start:
        raise unimportable(path, "it is binary, neither a .ncu-rep report nor text")
    with path.open("rb") as file:
        yield from _joined(path, _physical(path, file, kind))


def _physical(path: Path, file: BinaryIO, kind: str) -> Iterator[str]:
    text = TextIOWrapper(file, encoding=kind, errors="replace", newline="")
    while line := text.readline(LONGEST):
        if len(line) >= LONGEST or "\0" in line:
            raise unimportable(
                path, "it has a line of more than 16 MiB or of binary data, which no output of ncu has"
            )
        yield line


def _joined(path: Path, lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        row, count = line, 1
        while row.startswith('"') and row.count('"') % 2:
            more = next(lines, None)
            if more is None or count >= _MOST_JOINED:
                raise unimportable(path, "it is cut off within a quoted text; export it again")
            row, count = row + more, count + 1
        yield row.rstrip("\r\n")
