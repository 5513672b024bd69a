"""Find a GPU's datasheet by the name that the driver reports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from fathom.data import load
from fathom.machine.architectures import GUIDE, architecture
from fathom.machine.datasheet.sheet import Figure, Sheet, quantity

FILES = ("ampere", "ada", "hopper", "blackwell", "cdna3")
_ABOUT = {"source", "divide_by", "because"}


def find(gpu: dict[str, Any]) -> Sheet | None:
    """Return the datasheet of an inventory's GPU by its `name`; None for an unlisted chip."""
    name = str(gpu.get("name") or "")
    if not name:  # an imported trace has none
        return None
    return next((sheet for pattern, sheet in sheets() if re.fullmatch(pattern, name, re.I)), None)


def sheets() -> Iterator[tuple[str, Sheet]]:
    """Yield every datasheet with the pattern of its driver names; files are read when they are reached."""
    for name in FILES:
        yield from _sheets(name)


@cache
def _sheets(file: str) -> list[tuple[str, Sheet]]:
    rows = load("fathom.machine.datasheet", file)
    return [(row["matches"], Sheet(row["name"], dict(_figures(row)))) for row in rows]


def _figures(row: dict[str, Any]) -> Iterator[tuple[str, Figure]]:
    for block in row["published"]:
        divisor = block.get("divide_by", 1)
        note = f" ({block['because']}, so divided by {divisor})" if divisor != 1 else ""
        for key, words in block.items():
            if key not in _ABOUT:
                value, unit = quantity(words)
                yield key, Figure(value / divisor, unit, block["source"] + note)
    yield from _derived(row)


def _derived(row: dict[str, Any]) -> Iterator[tuple[str, Figure]]:
    """Yield rates that makers publish per multiprocessor and clock."""
    merged = {key: words for block in row["published"] for key, words in block.items()}
    family = architecture(row.get("capability"))
    if family is None or not {"sms", "clock"} <= merged.keys():
        return
    sms, (clock, _) = merged["sms"], quantity(merged["clock"])
    at = f"per clock and multiprocessor ({GUIDE}) × {sms} × {clock / 1e9:.3f} GHz"
    shared = family.shared_bytes_per_clock
    yield "shared.read", Figure(sms * clock * shared, "B/s", f"{shared} B {at}")
    if family.special_per_sm:
        special = family.special_per_sm
        yield "vector.special", Figure(sms * clock * special, "1/s", f"{special} {at}")
