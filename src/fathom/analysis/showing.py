"""Short texts and HTML of results for an interactive session and a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from fathom.visible import visible, visible_line


def number(value: float, digits: int = 3) -> str:
    """Return a number with as many significant digits, without an exponent: `2.34`, `12,300`."""
    return f"{float(f'{value:.{digits}g}'):,.12f}".rstrip("0").rstrip(".")


def between(value: float, low: float | None, high: float | None, digits: int = 3) -> str:
    """Return a time with its interval: `2.34 ms (1.30 to 3.41)`."""
    interval = ""
    if low is not None and high is not None:
        interval = f" ({number(low, digits)} to {number(high, digits)})"
    return f"{number(value, digits)} ms{interval}"


def tagged(kind: str, text: str) -> str:
    """Return a representation in angle brackets."""
    return f"<{kind} {visible_line(text)}>"


def html(title: str, text: str, lines: Iterable[str], code: str = "") -> str:
    """Return an HTML fragment: a title and a text, then a list and code, unless they are empty."""
    listed = "".join(f"<li>{escape(line)}</li>" for line in lines)
    parts = [
        f"<p><b>{escape(title)}</b><br>{escape(text)}</p>",
        f"<ul>{listed}</ul>" if listed else "",
        f"<pre>{escape(code.rstrip())}</pre>" if code else "",
    ]
    return visible("".join(parts))
