"""Labels, sizes and lists shared by the screens about machines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from string import Formatter
from typing import Any

from rich.text import Text

from fathom.report.screen import SEPARATOR, beside, joined

_HARD = "\N{NO-BREAK SPACE}"
LABEL = 10


def size(count: float | None) -> str:
    """Return a number of bytes in binary units: 48 KiB, 141 GiB, 2 TiB."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count is not None and count >= scale:
            return f"{count / scale:.4g} {unit}" if count % scale == 0 else f"{count / scale:.3g} {unit}"
    return "unknown" if count is None else f"{count:.0f} B"


class _Facts(Formatter):
    """Formats `{bytes:size}` in binary units, everything else as usual."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        return size(value) if format_spec == "size" else super().format_field(value, format_spec)


def known(facts: Mapping[str, Any], *templates: str) -> str:
    """Fill the templates, like `"{cores:g} cores"`, whose fields all have values; join them by dots."""
    fields = {template: [field for _, field, *_ in _FACTS.parse(template) if field] for template in templates}
    return joined(*(_FACTS.vformat(t, (), facts) for t in templates if all(map(facts.get, fields[t]))))


_FACTS = _Facts()


def labelled(label: str, text: str, cells: int, style: str = "") -> Iterator[Text]:
    """Yield `text` wrapped beside its bold label; nothing for an empty text."""
    return block(label, (Text(line, style) for line in wrapped(text, cells - LABEL)))


def block(label: str, lines: Iterable[Text]) -> Iterator[Text]:
    """Yield lines unchanged, the first one beside the label."""
    return beside(f"{label:<{LABEL}}", lines)


def wrapped(text: str, cells: int) -> list[str]:
    """Wrap `text` to lines of at most `cells`, and break parts between dots only if they are long."""
    parts = (part.replace(" ", _HARD) if len(part) < cells // 2 else part for part in text.split(SEPARATOR))
    lines = textwrap.wrap(SEPARATOR.join(parts), cells, break_on_hyphens=False)
    return [line.replace(_HARD, " ") for line in lines]


def spans(numbers: Iterable[int]) -> str:
    """Return numbers as ranges: `0–3, 6` for 0, 1, 2, 3, 6."""
    groups: list[list[int]] = []
    for number in sorted(numbers):
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]}–{g[-1]}" for g in groups)
