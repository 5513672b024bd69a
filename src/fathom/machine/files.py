"""Readers for the kernel's small files; any of them may be missing, unreadable or malformed."""

from __future__ import annotations

import os
import re
from pathlib import Path


def text(path: Path) -> str:
    """Return the file's text, or an empty string if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except (OSError, ValueError):
        return ""


def number(path: Path) -> int | None:
    """Return the file's integer, or None."""
    return integer(text(path))


def integer(word: str) -> int | None:
    """Parse `word` as an integer of at most 20 digits, or return None."""
    return int(word) if re.fullmatch(r"\s*-?\d{1,20}\s*", word, re.ASCII) else None


def names(folder: Path) -> list[str]:
    """List `folder`, sorted by trailing number; [] if it cannot be listed."""
    try:
        return sorted(os.listdir(folder), key=_natural)  # noqa: PTH208 - also of what vanishes meanwhile
    except OSError:
        return []


def _natural(name: str) -> tuple[str, int, str]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or -1), name


def link_name(path: Path) -> str | None:
    """Return the last part of a symbolic link's target, such as a driver's name."""
    try:
        return Path(os.readlink(path)).name  # noqa: PTH115
    except OSError:
        return None
