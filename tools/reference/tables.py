"""The reference of the tables of a sounding: columns, types, units, and the comments beside them."""

from __future__ import annotations

import ast
import inspect
import re

from fathom.sounding import TABLES, schema
from reference.markdown import code, table, text

ROWS = {
    "steps": "one step of the program",
    "summaries": "the steps of one kind in a window of counted steps",
    "ops": "one framework op or named region on the host",
    "launches": "one runtime or driver call",
    "kernels": "one piece of device work",
    "waits": "an interval of the host with a known cause",
    "stacks": "one sampled stack of a host thread",
    "samples": "one sample of a group of hardware counters",
    "counters": "one counter of a kernel family",
    "input": "one batch, as the loader made it",
    "memory": "one event of the allocator",
    "telemetry": "one reading of a device's or the host's sensors",
    "usage": "a stretch of clean steps, and the counts of the operating system for their thread",
    "requests": "one request that a serving engine answered",
    "request_spans": "a stretch of one request outside of the engine's iterations",
    "iterations": "one iteration of a serving engine",
    "turns": "one request in one iteration",
}
UNITS = (
    ("_ns", "ns"),
    ("_w", "W"),
    ("_j", "J"),
    ("_mhz", "MHz"),
    ("_c", "°C"),
    ("_percent", "%"),
    ("bytes", "B"),
    ("size", "B"),
    ("allocated", "B"),
    ("reserved", "B"),
)
INTRODUCTION = """# Tables of a sounding

A sounding is a directory `NAME.fathom` with `manifest.json` (command, versions, ranks, phases, problems),
`machine.json` (the inventory and ceilings of the machine) and Parquet tables for each rank. `fathom query`
runs SQL over them; from Python, `Sounding.table(name)` is a polars LazyFrame, and `Sounding.sql(query)` a
DataFrame.

    fathom query train.fathom "SELECT family, count(*) AS launches FROM kernels GROUP BY family"

Times are nanoseconds since the epoch. Each table also has a `rank` column when it is read. `phase` is the
phase in which the row was recorded ({phases}), and `burst` numbers the uninterrupted stretches of a phase.

Queries can also use `ledger`, `profiled_ledger`, `windows`, `collectives`, `ranks`, `late_ranks`, `jitter`
and `request_ledger`, which are computed from these tables. The properties of
[`Sounding`](api.md#fathom.Sounding) with these names describe them.

"""


def pages() -> dict[str, str]:
    """One page with every table."""
    notes = comments(inspect.getsource(schema))
    phases = ", ".join(f"`{phase}`" for phase in schema.PHASES)
    parts = [INTRODUCTION.format(phases=phases)]
    for name, columns in TABLES.items():
        rows = [_row(column, kind, notes.get((name, column), "")) for column, kind in columns.items()]
        parts.append(
            f"## {name}\n\nA row is {ROWS[name]}.\n\n{table(('column', 'type', 'unit', 'meaning'), rows)}"
        )
    return {"reference/tables.md": "\n".join(parts)}


def _row(column: str, kind: object, note: str) -> tuple[str, str, str, str]:
    unit = next((unit for end, unit in UNITS if column.endswith(end)), "")
    return code(column), code(str(kind)), unit, text(note)


def comments(source: str) -> dict[tuple[str, str], str]:
    """The comment behind each column's definition, by table and column."""
    lines = source.splitlines()
    notes = {}
    for node in ast.walk(ast.parse(source)):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and isinstance(getattr(node, "value", None), ast.Dict):
            for key in node.value.keys:  # type: ignore[union-attr]
                if isinstance(key, ast.Constant) and (note := re.search(r"  # (.+)", lines[key.lineno - 1])):
                    notes[target.id.lower(), str(key.value)] = note[1]
    return notes
