"""Pieces of Markdown: escaped text, links, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_CODE = re.compile(r"(`[^`\n]+`)")
_URL = re.compile(r"https?://[^\s,;)]+[^\s,;).:]")
_SPECIAL = re.compile(r"([*<\[\]])")


def text(words: str) -> str:
    """Escape prose, except its `code` spans; URLs become links."""
    parts = _CODE.split(" ".join(words.split()))
    return "".join(part if part.startswith("`") else _prose(part) for part in parts)


def _prose(part: str) -> str:
    urls = _URL.findall(part)
    pieces = [_SPECIAL.sub(r"\\\1", piece).replace("__", r"\_\_") for piece in _URL.split(part)]
    return "".join(
        piece + (f"<{url}>" if url else "") for piece, url in zip(pieces, [*urls, ""], strict=True)
    )


def code(words: str) -> str:
    """Words as a code span; empty if there are none."""
    return f"`{words}`" if words else ""


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown. A header that ends in `>` is of a column that aligns to the right."""
    names = [header.removesuffix(">") for header in headers]
    rule = ["---:" if header.endswith(">") else "---" for header in headers]
    lines = [names, rule, *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(cell: str) -> str:
    parts = _CODE.split(" ".join(cell.split()))
    return "".join(part if part.startswith("`") else part.replace("|", r"\|") for part in parts)


def fields(rows: Iterable[tuple[str, str]]) -> str:
    """Paragraphs, each with its name in bold; those without a text are left out."""
    return "\n\n".join(f"**{name}** {words}" for name, words in rows if words) + "\n"


def block(language: str, body: str) -> str:
    """A fenced block."""
    return f"```{language}\n{body.rstrip()}\n```\n"
