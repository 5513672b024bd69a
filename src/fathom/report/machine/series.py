"""Ceilings with several values: copies between pairs of GPUs, and collectives by size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from fathom.machine import Ceiling
from fathom.report import units

_NAME, _CELL = 26, 10
_MOST = 7  # columns


def peers(ceilings: Sequence[Ceiling]) -> Iterator[Text]:
    """GB/s from each GPU (rows) to each other one, one way at a time."""
    matrix = next((c.series for c in ceilings if c.id == "link.peer"), [])
    cells = {(row.get("from"), row.get("to")): row["value"] for row in matrix if not row.get("both_ways")}
    gpus = sorted({gpu for pair in cells for gpu in pair if isinstance(gpu, int)})
    if len(gpus) < 2:
        return
    head = "".join(f"{f'to GPU {gpu}':>{_CELL}}" for gpu in gpus)
    yield Text(f"{'peer copies, GB/s':<{_NAME}}{head}", "dim underline")
    for gpu in gpus:
        row = "".join(f"{_gb(cells.get((gpu, other))):>{_CELL}}" for other in gpus)
        yield Text(f"{f'  from GPU {gpu}':<{_NAME}}{row}")


def collectives(ceilings: Sequence[Ceiling]) -> Iterator[Text]:
    """Time and bus bandwidth of each collective at each size."""
    measured = [c for c in ceilings if c.id.startswith("collective.") and c.series]
    sizes = sorted({int(row["bytes"]) for c in measured for row in c.series})
    if not sizes:
        return
    shown = sizes if len(sizes) <= _MOST else sizes[:: -(-len(sizes) // _MOST)]
    head = "".join(f"{units.memory(size):>{_CELL}}" for size in shown)
    yield Text(f"{'collectives, GB/s on the bus':<{_NAME}}{head[2:]}", "dim underline")
    for ceiling in measured:
        rows = {int(row["bytes"]): row for row in ceiling.series}
        name = ceiling.id.removeprefix("collective.").replace("_", " ")
        yield Text(f"  {name:<{_NAME - 2}}" + "".join(f"{_rate(rows.get(s)):>{_CELL}}" for s in shown))
        yield Text(f"{'':<{_NAME}}" + "".join(f"{_time(rows.get(s)):>{_CELL}}" for s in shown), "dim")


def _gb(value: float | None) -> str:
    return "·" if value is None else units.significant(value / 1e9)


def _rate(row: dict[str, Any] | None) -> str:
    return _gb(row["value"] if row else None)


def _time(row: dict[str, Any] | None) -> str:
    seconds = row.get("seconds") if row else None
    return units.duration(1e3 * seconds) if seconds else ""
