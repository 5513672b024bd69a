"""Device work by category, and ops by input shapes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.text import Text

from fathom.analysis.results import Device, OpShape
from fathom.analysis.work import DTYPES
from fathom.report import units
from fathom.report.ledger import of_profiled, step_ms
from fathom.report.screen import columns_within, joined, paragraph
from fathom.units import GB

ROWS = 8
LEAST = 0.001  # of the step
TFLOP = 1e12
_COLUMNS = {"ms": 8, "%": 6, "calls": 6, "median µs": 10, "TFLOP/s": 12, "GB/s": 16}


def categories(device: Device, width: int) -> Iterator[Text]:
    """Yield the categories on a line or two, longest first."""
    total = step_ms(device)
    shown = [category for category in device.categories if category.ms >= LEAST * total]
    parts = [
        f"{category.name} {units.duration(category.ms)} {units.share(category.ms, total)} %"
        for category in shown
    ]
    if parts:
        yield from paragraph("work      ", joined(*parts), width)


def shapes(device: Device, width: int, top: int | None) -> Iterator[Text]:
    """Yield the table of ops by input shapes; with `top` None, all rows."""
    if not device.shapes:
        return
    chosen = device.shapes if top is None else device.shapes[: min(top, ROWS)]
    rows = [_cells(row, device) for row in chosen]
    columns = columns_within(_widths(rows), width)
    room = width - sum(columns.values())
    head = "".join(f"{title:>{cells}}" for title, cells in columns.items())
    yield Text(f"{'ops by shape':<{room}}{head}", "dim underline")
    labels = [f"  {label}" for label in labelled(device.shapes)[: len(chosen)]]
    often = Counter(units.shorten(label, room - 1) for label in labels)
    for row, label in zip(rows, labels, strict=True):
        cells = "".join(f"{cell:>{n}}" for cell, n in zip(row, columns.values(), strict=False))
        name = units.shorten(label, room - 1)
        if often[name] > 1:  # the ends distinguish them
            yield Text(units.shorten(label, width))
            name = ""
        yield Text(f"{name:<{room}}{cells}")
    if left := len(device.shapes) - len(chosen):
        yield Text(f"  {left} more with --all", "dim")
    yield from of_profiled(device)


def _widths(rows: list[list[str]]) -> dict[str, int]:
    """Return the widths of the columns, wider where a cell needs it: small rates have many digits."""
    longest = [max(map(len, cells)) for cells in zip(*rows, strict=True)] or [0] * len(_COLUMNS)
    return {
        title: max(cells, most + 1) for (title, cells), most in zip(_COLUMNS.items(), longest, strict=True)
    }


def labelled(rows: Sequence[OpShape]) -> list[str]:
    """Return the ops with the shapes of their tensors, like `aten::mm 8944×1024, 1024×2816`.

    Rows that differ only in their dtypes have them behind the op: `aten::copy_ (bf16, fp32) 64×512, 64×512`.
    """
    often = Counter(map(_named, rows))
    return [_named(row, _dtypes(row) if often[_named(row)] > 1 else "") for row in rows]


def _named(row: OpShape, dtypes: str = "") -> str:
    tensors = ", ".join(_tensors(json.loads(row.shapes)))
    return " ".join(filter(None, (row.op, dtypes and f"({dtypes})", tensors)))


def _dtypes(row: OpShape) -> str:
    """Return the dtypes of an op's tensors and numbers, in the order of its arguments."""
    return ", ".join(DTYPES[name] for name in json.loads(row.dtypes or "[]") if name in DTYPES)


def _tensors(sizes: list[object]) -> Iterator[str]:
    """Yield the sizes of tensors; a list of tensors is shown by its length and first tensor."""
    for size in sizes:
        if isinstance(size, list) and size and isinstance(size[0], list):
            first = next(_tensors([size[0]]), "scalar")
            yield f"{len(size)} of {first}"
        elif isinstance(size, list) and size:
            yield "×".join(str(length) for length in size)


def _cells(row: OpShape, device: Device) -> list[str]:
    digits = units.decimals(device.total_ms)
    return [
        f"{row.ms:.{digits}f}",
        units.share(row.ms, device.total_ms),
        f"{row.count:.3g}",
        units.significant(row.median_us),
        spread(row.flops_per_s, TFLOP),
        spread(row.bytes_per_s, GB),
    ]


def spread(rates: list[float] | None, unit: float) -> str:
    """Return the smallest and the largest rate, like `593–627`; only the median if they round to the same."""
    if rates is None:
        return units.MISSING
    least, median, most = (units.rate(rate, unit) or "0" for rate in rates)
    return median if least == most else f"{least}–{most}"
