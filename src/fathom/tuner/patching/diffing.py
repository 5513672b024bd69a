"""Unified diffs that `git apply` and `patch -p1` take, byte for byte."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

NO_NEWLINE = "\\ No newline at end of file\n"


def diff_of(path: str, before: str, after: str) -> str:
    """Return the diff of a file; its lines keep their endings."""
    label = f"{path}\t" if " " in path else path  # ends a name with blanks
    header = f"--- a/{label}\n+++ b/{label}\n"
    lines = list(difflib.unified_diff(_lines(before), _lines(after), n=3))[2:]
    return header + "".join(_ended(line) for line in lines) if lines else ""


def _lines(text: str) -> list[str]:
    return list(_split(text))


def _split(text: str) -> Iterator[str]:
    """Yield lines that end in a line feed only, as git counts them."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}"
