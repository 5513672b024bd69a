"""Read small files, numbers and lists from the kernel; any may be missing, unreadable or malformed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from fathom.units import ranges

ROOT = Path("/")  # tests pass another folder
MOST = 1 << 16  # longest range in a list: no kernel supports as many CPUs


class UnreadableError(Exception):
    """Something could not be read; the message says why in one clause."""


class NotOfferedError(Exception):
    """This device or kernel lacks the feature; the message names it."""


def text(path: Path) -> str:
    """Return the file's text, or an empty string if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except (OSError, ValueError):
        return ""


def number(path: Path) -> int | None:
    """Return the file's content as an integer, or None."""
    return integer(text(path))


def integer(word: str) -> int | None:
    """Parse `word` as an integer of at most 20 digits, or return None."""
    return int(word) if re.fullmatch(r"\s*-?\d{1,20}\s*", word, re.ASCII) else None


def natural(word: str) -> int | None:
    """Parse `word` as a non-negative integer, or return None."""
    value = integer(word)
    return None if value is None or value < 0 else value


def parse_list(text: str) -> frozenset[int]:
    """Parse a list of numbers and ranges such as `0-3,8,10-11`; other parts are skipped."""
    members: set[int] = set()
    for first, last in re.findall(r"(?:^|,)\s*([0-9]{1,9})(?:-([0-9]{1,9}))?(?=\s*(?:,|$))", text.strip()):
        members.update(range(int(first), min(int(last or first), int(first) + MOST) + 1))
    return frozenset(members)


def format_list(members: Iterable[int]) -> str:
    """Format numbers as a list with ranges; `none` if there are none."""
    return ranges(members, ",") or "none"


def names(folder: Path) -> list[str]:
    """Return the names in `folder`, sorted by their trailing number; [] if it cannot be listed."""
    try:
        return sorted(os.listdir(folder), key=_natural)  # noqa: PTH208 - only names are needed
    except OSError:
        return []


def _natural(name: str) -> tuple[str, int, str]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or -1), name


def link_name(path: Path) -> str | None:
    """Return the last part of a symbolic link's target, like a driver's name; None if it is not a link."""
    try:
        return Path(os.readlink(path)).name  # noqa: PTH115
    except OSError:
        return None
