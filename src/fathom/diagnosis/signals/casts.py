"""Casts to a wider dtype and back, with nothing between them that needs it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from fathom.analysis.work import DTYPES, SIZE
from fathom.diagnosis.signals.kernels import combined, row_dicts
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Work
from fathom.diagnosis.signals.shapes import dtypes_of, shapes_of
from fathom.diagnosis.signals.value import signal

CAST = re.compile(r"aten::_to_copy > aten::copy_$")
WIDE_INSIDE = re.compile(
    r"aten::(native_(layer|group)_norm|_fused_rms_norm|_?(log_)?softmax|gelu|silu|relu)\b"
)

Row = dict[str, Any]


@signal("kernels.round_trips", "ms per step")
def round_trips(recorded: Recorded) -> list[Work]:
    """Casts that come in pairs, there and back at once, or around one op that is as exact without them."""
    groups: dict[tuple, list[Row]] = {}
    for row in undone(recorded)[1]:
        groups.setdefault((row["label"], *row["path"], row["source"]), []).append(row)
    return [combined(mine, recorded.steps) for mine in groups.values()]


@signal("kernels.undone")
def undone(recorded: Recorded) -> tuple[list[Row], list[Row]]:
    """The main stream's kernels in their order, and those of them that are undone casts."""
    rows = row_dicts(recorded)
    return rows, needless(rows)


def needless(rows: list[Row]) -> list[Row]:
    """Those of one stream's rows, in their order, that are undone casts."""
    kept: list[Row] = []
    casts = [cast_of(" > ".join(row["path"]), row["shapes"], row["dtypes"]) for row in rows]
    place = 0
    while place < len(rows):
        back = _back(rows, casts, place)
        kept += [rows[place], rows[back]] if back else []
        place = back + 1 if back else place + 1
    return kept


def _back(rows: list[Row], casts: list[tuple | None], place: int) -> int:
    """Where the cast at `place` is undone; 0 for nowhere."""
    cast = casts[place]
    if cast is None or SIZE[cast[1]] <= SIZE[cast[0]]:
        return 0
    undone = (cast[1], cast[0], cast[2])
    if casts[place + 1 : place + 2] == [undone]:
        return place + 1
    inside = place + 2 < len(rows) and WIDE_INSIDE.search(" > ".join(rows[place + 1]["path"]))
    return place + 2 if inside and casts[place + 2] == undone else 0


@lru_cache(1 << 14)
def cast_of(path: str, shapes: str | None, dtypes: str | None) -> tuple[str, str, tuple[int, ...]] | None:
    """Source dtype, target dtype and shape of a cast between floating-point dtypes; None for other ops."""
    types, sizes = dtypes_of(dtypes), shapes_of(shapes)
    if not CAST.search(path) or len(types) < 2 or len(sizes) < 2 or sizes[0] != sizes[1]:
        return None
    to, of = (DTYPES.get(name, "") for name in types[:2])
    floats = to != of and all(name.startswith(("fp", "bf")) for name in (to, of))
    return (of, to, tuple(sizes[0])) if floats else None
