"""Parse the kernel's numbers and lists of numbers: `0-3,8,10-11`."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST = 1 << 16  # more CPUs than any kernel supports; a longer range is damaged data


def natural(text: str) -> int | None:
    """Parse a non-negative integer; None for anything else."""
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text.strip()) else None


def parse_list(text: str) -> frozenset[int]:
    """Parse a list of numbers and ranges; other parts are skipped."""
    members: set[int] = set()
    for first, last in re.findall(r"(?:^|,)\s*([0-9]{1,9})(?:-([0-9]{1,9}))?(?=\s*(?:,|$))", text.strip()):
        members.update(range(int(first), min(int(last or first), int(first) + MOST) + 1))
    return frozenset(members)


def format_list(members: Iterable[int]) -> str:
    """Format numbers as a list with ranges; `none` if there are none."""
    runs: list[list[int]] = []
    for number in sorted(members):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs) or "none"
