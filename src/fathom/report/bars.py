"""Bars of Unicode blocks."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, width: int) -> str:
    """A bar of `share` (0 to 1) of `width` cells, in eighths of a cell; never empty for a positive share."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(width)


def cells(parts: Sequence[float], width: int) -> list[int]:
    """Split `width` cells among the parts: at least one each, the rest by largest remainder."""
    total = sum(parts)
    if total <= 0:
        return [0] * len(parts)
    exact = [part / total * width for part in parts]
    counts = [max(int(cell), 1) if part > 0 else 0 for part, cell in zip(parts, exact, strict=True)]
    while (missing := width - sum(counts)) != 0:
        sign = 1 if missing > 0 else -1
        movable = [i for i, count in enumerate(counts) if parts[i] > 0 and (sign > 0 or count > 1)]
        if not movable:
            break
        counts[max(movable, key=lambda i: sign * (exact[i] - counts[i]))] += sign
    return counts
