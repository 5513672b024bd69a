"""Unified diffs that `git apply` and `patch -p1` take, byte for byte."""

from __future__ import annotations

import difflib
from io import StringIO

NO_NEWLINE = "\\ No newline at end of file\n"


def diff_of(path: str, before: str, after: str) -> str:
    """Return the diff of a file; its lines keep their endings."""
    label = f"{path}\t" if " " in path else path  # ends a name with blanks
    header = f"--- a/{label}\n+++ b/{label}\n"
    lines = list(difflib.unified_diff(_lines(before), _lines(after), n=3))[2:]
    ended = (line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in lines)
    return header + "".join(ended) if lines else ""


def _lines(text: str) -> list[str]:
    """Return the lines with their endings; only a line feed ends a line, as git counts."""
    return StringIO(text, newline="\n").readlines()
