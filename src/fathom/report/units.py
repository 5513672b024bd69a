"""Format numbers as text, with few digits and their units, or as bars of Unicode blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import floor, isfinite, log10
from typing import TYPE_CHECKING

from fathom.units import NS_PER_S

if TYPE_CHECKING:
    from fathom.analysis.results import Money
    from fathom.planner import Quantity

MISSING = "–"
_THOUSANDS = ("", "k", "M", "G", "T", "P", "E")
_DISTINCT = re.compile(r"·|^\(.+:\d+\)$")  # ends that distinguish rows whose names begin alike
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def significant(value: float, digits: int = 3) -> str:
    """Return `value` rounded to `digits` significant digits, never with an exponent: 0.0463, 463, 46300."""
    if not isfinite(value) or value == 0:
        return "0" if value == 0 else MISSING
    decimals = digits - 1 - floor(log10(abs(value)))
    rounded = round(value, decimals)
    return f"{rounded:.{max(decimals, 0)}f}"


def scaled(value: float | None, unit: str = "", digits: int = 3) -> str:
    """Return `value` with a decimal prefix: 172000 tokens/s is 172k tokens/s, 1.9e9 B is 1.90 GB."""
    if value is None or not isfinite(value):
        return MISSING
    size, prefix = abs(value), 0
    while size >= 999.5 and prefix < len(_THOUSANDS) - 1:
        size, value, prefix = size / 1000, value / 1000, prefix + 1
    text = str(round(value)) if prefix == 0 and value == round(value) else significant(value, digits)
    return f"{text} {_THOUSANDS[prefix]}{unit}".rstrip() if unit else f"{text}{_THOUSANDS[prefix]}"


def rate(value: float | None, unit: float) -> str:
    """Return `value` in multiples of `unit`; empty for None and zero, "<0.001" for smaller values."""
    if not value:
        return ""
    return significant(value / unit) if value >= 0.001 * unit else "<0.001"


def flops_unit(fastest: float) -> tuple[str, float]:
    """Return name and size of the unit for a column of FLOP/s with the maximum `fastest`."""
    return ("TFLOP/s", 1e12) if fastest >= 1e12 or not fastest else ("GFLOP/s", 1e9)


def duration(ms: float | None) -> str:
    """Return a time in a suitable unit: 850 ns, 12.3 µs, 46.3 ms, 1.21 s."""
    if not ms:
        return MISSING if ms is None else "0 ms"
    for unit, scale in (("s", 1e-3), ("ms", 1.0), ("µs", 1e3)):
        if abs(ms) * scale >= 0.9995:
            return f"{significant(ms * scale, 4 if abs(ms * scale) >= 1000 else 3)} {unit}"
    return f"{ms * 1e6:.0f} ns"


def joules(value: float) -> str:
    """Return an energy in a suitable unit: 24.9 J, 316 mJ, 33.1 nJ."""
    for unit, scale in (("", 1.0), ("m", 1e3), ("µ", 1e6)):
        if abs(value) * scale >= 0.9995 or not value:
            return scaled(value * scale, f"{unit}J")
    return f"{significant(value * 1e9)} nJ"


def within(ms: float, low: float, high: float) -> str:
    """Return milliseconds with an interval: `3.2 ms (2.1–4.3)`, or `3.2 ms (-1.2 to 4.3)`."""
    return (
        f"{significant(ms, 2)} ms ({significant(low, 2)}{' to ' if low < 0 else '–'}{significant(high, 2)})"
    )


def perhaps(value: float, low: float, high: float) -> str:
    """Return "perhaps " for a figure whose interval is wider than the figure itself, else ""."""
    return "perhaps " if high - low > value else ""


def memory(size: float | None) -> str:
    """Return bytes of memory in binary units, as allocators report them."""
    if size is None:
        return MISSING
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(size) >= scale:
            return f"{significant(size / scale)} {unit}"
    return f"{size:.0f} B"


def share(part: float, total: float | None) -> str:
    """Return `part` as a percentage of `total`; "<0.1" for positive shares that would round to zero."""
    if not total:
        return MISSING
    percent = 100 * part / total
    return "<0.1" if 0 < percent < 0.05 else f"{percent:.1f}"


def percent(share: float | None) -> str:
    """Return a share in percent with a digit after the point."""
    return MISSING if share is None else f"{100 * share:.1f} %"


def signed_share(part: float, total: float) -> str:
    """Return `part` as a percentage of `total`, with the sign of negative parts."""
    return share(part, total) if part >= 0 else f"-{share(-part, total)}".replace("-<", ">-")


def decimals(total_ms: float | None) -> int:
    """Return the decimals that show `total_ms`, the sum of a column, with four digits; at least one."""
    return 2 if not total_ms or total_ms <= 0 else min(max(3 - floor(log10(total_ms)), 1), 6)


def date(ns: int) -> str:
    """Return a time in UTC, to the minute."""
    return datetime.fromtimestamp(ns / NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M UTC")


def amount(value: float, currency: str) -> str:
    """Return an amount of money: `22.7 USD`, `0.0000109 USD`."""
    return f"{significant(value)} {currency}"


def a_day(saved: Money | None) -> str:
    """Return `22.7 USD per day and GPU`; empty without a price or a gain."""
    return "" if saved is None else f"{amount(saved.amount, saved.currency)} per day and GPU"


def spanned(
    q: Quantity, unit: str = "", written: Callable[[float], str] = significant, mark: str = ""
) -> str:
    """Return a figure with its interval, and a `mark` behind it: `974 W (779 to 1170, assumed)`."""
    low, high = map(written, q.interval)
    return f"{written(q.value)}{unit} ({low} to {high}{mark})"


def shorten(name: str, width: int) -> str:
    """Shorten `name` to `width` characters.

    A launch shape or `(file:line)` at the end stays, and the last third of a name that is one word.
    """
    if len(name) <= width:
        return name
    front, space, end = name.rpartition(" ")
    if not space:
        return f"{name[: width - width // 3 - 1]}…{name[len(name) - width // 3 :]}"
    if not _DISTINCT.search(end) or len(end) > width // 2:
        return name[: width - 1] + "…"
    return f"{front[: width - len(end) - 2]}… {end}"


def bar(share: float, width: int) -> str:
    """Return a bar of `share` (0 to 1) of `width` cells, in eighths; never empty for a positive share."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0 and width:
        eighths = max(eighths, 1)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(width)


def apportion(parts: Sequence[float], width: int) -> list[int]:
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
