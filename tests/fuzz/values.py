"""Values that programs rarely expect."""

from __future__ import annotations

from typing import Any

Damage = dict[str, Any]

INTEGERS = (
    *(0, 1, -1, 2, 255, -128, 2**31 - 1, -(2**31), 2**53, -(2**53)),
    *(2**62, -(2**62), 2**63 - 1, -(2**63)),
)
FLOATS = (0.0, -1.0, 1e-320, 1e308, -1e308, float("nan"), float("inf"), float("-inf"))
TEXTS = (
    *("", " ", "\x00", "\x1b[2J\x1b]0;title\x07", "\r\n", "\u202e", "\x9b31m", "[[", "{}", "null", "1e999"),
    *("a" * 100_000, "[" * 5_000, "[[1, 2], [3]]", "[[-1, 99999999999999999999]]"),
    *("(a+)+$", "x(", "%s{}{0}", "[/bold]", "<script>", "../../x", "compute", "copy", "collective"),
    *("timeline", "clean", "counters", "train", "cudaLaunchKernel", "0x0x0", "1x1"),
)
