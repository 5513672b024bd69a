"""The reference of measures of kernels, group by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fathom.analysis.measures.evaluate import catalogue
from reference.markdown import table, text

TITLES = {
    "pipes": "Pipelines",
    "issue": "Instruction issue",
    "occupancy": "Occupancy",
    "memory": "Memory",
    "shared": "Shared memory",
    "stalls": "Stall reasons",
    "mix": "Instruction mix",
    "links": "Links",
    "front": "Front end",
    "launch": "Launch",
}
INTRODUCTION = """# Measures

Measures of a kernel family are derived from hardware counters, launch shapes and the timeline. `fathom
kernel SOUNDING NAME` prints those that the recording can give, and what limits the family. The sources of a
measure are in order of preference: the first whose counters were all recorded is used.

Values outside the healthy range are pointed out, with the words in the last column.

"""


def pages() -> dict[str, str]:
    """One page with every measure."""
    rows = catalogue()
    parts = [INTRODUCTION]
    for group in dict.fromkeys(row.group for row in rows):
        listed = [_row(row) for row in rows if row.group == group]
        headers = ("measure", "unit", "meaning", "healthy", "otherwise")
        parts.append(f"## {TITLES[group]}\n\n{table(headers, listed)}\n{_formulas(group)}")
    return {"reference/measures.md": "\n".join(parts)}


def _formulas(group: str) -> str:
    """A table of sources and formulas that is folded until it is clicked."""
    rows = [
        (f"`{row.name}`", source.source, f"`{source.formula}`")
        for row in catalogue()
        if row.group == group
        for source in row.sources
    ]
    lines = table(("measure", "source", "formula"), rows).splitlines()
    return "\n".join(['??? note "Formulas"', "", *(f"    {line}" for line in lines), ""])


def _row(row: Any) -> tuple[str, ...]:
    said = (("low", row.low), ("high", row.high))
    words = "<br>".join(f"{side}: {text(part)}" for side, part in said if part)
    return (f"`{row.name}`", text(row.unit), text(row.meaning), _range(row.healthy), words)


def _range(healthy: Sequence[float | None]) -> str:
    least, most = healthy
    if least is None and most is None:
        return ""
    if least is None:
        return f"≤ {most:g}"
    return f"≥ {least:g}" if most is None else f"{least:g} to {most:g}"
