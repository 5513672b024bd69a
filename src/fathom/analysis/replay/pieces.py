"""Device work for the replay, with the call of each piece, and the machine's constants that it shows."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.columns import distinct, filled
from fathom.analysis.device import BEFORE_ALL
from fathom.analysis.intervals import Array

ENOUGH = 8  # fewest values for which a key gets a separate constant
USUAL = 4.0  # times the median: larger values have another cause


class Pieces(msgspec.Struct):
    """One burst's device work, sorted by start. Times are in ns; index -1 means unknown.

    `call` launched the piece. `inner` marks the nodes of a CUDA graph after the first. `before` is the
    previous piece of the same stream. `arrived` is the time when a collective's last peer began (-1 if
    unknown, or no collective).
    """

    start: Array
    end: Array
    line: Array  # index of the (device, stream) pair
    device: Array
    call: Array
    launched: Array  # start of the call; BEFORE_ALL if it was not recorded
    arrived: Array
    kind: Array
    family: Array
    direction: Array
    kinds: list[str]
    families: list[str]
    directions: list[str]
    inner: Array = msgspec.field(default_factory=lambda: np.zeros(0, bool))
    before: Array = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def length(self) -> Array:
        """Device time in ns; of a collective with known peers, from the last arrival on."""
        return self.end - np.where(self.met, self.arrived, self.start)

    @property
    def met(self) -> Array:
        """Mask of the collectives whose peers are known."""
        return self.arrived >= 0

    def of_kind(self, *names: str) -> Array:
        """Return a mask of the pieces of these kinds."""
        return np.isin(self.kind, [i for i, name in enumerate(self.kinds) if name in names])


def pieces_of(kernels: pl.DataFrame, call_of: pl.DataFrame) -> tuple[Pieces, Array]:
    """Return the pieces, and their rows in `kernels`; `call_of` has correlation and call."""
    rows = kernels.with_row_index("row").sort("start_ns", "end_ns", maintain_order=True)
    rows = rows.join(call_of, on="correlation", how="left", maintain_order="left")
    line = rows.select(
        pl.struct(pl.col("device").fill_null(-1), pl.col("stream").fill_null(-1)).rank("dense")
    )
    coded = {name: _codes(rows[name]) for name in ("kind", "family", "direction")}
    arrived = (
        rows["arrived_ns"] if "arrived_ns" in rows.columns else pl.Series([-1] * rows.height, dtype=pl.Int64)
    )
    pieces = Pieces(
        rows["start_ns"].to_numpy(),
        rows["end_ns"].to_numpy(),
        line.to_series().to_numpy().astype(np.int64),
        filled(rows["device"], -1).to_numpy(),
        filled(rows["call"], -1).to_numpy(),
        filled(rows["launched"], BEFORE_ALL).to_numpy(),
        arrived.fill_null(-1).to_numpy(),
        coded["kind"][0],
        coded["family"][0],
        coded["direction"][0],
        coded["kind"][1],
        coded["family"][1],
        coded["direction"][1],
    )
    pieces.before = _before(pieces.line)
    pieces.inner = _inner(pieces.call)
    return pieces, rows["row"].to_numpy()


def _codes(column: pl.Series) -> tuple[Array, list[str]]:
    values = filled(column, "")
    names = values.unique(maintain_order=True)
    return values.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64), names.to_list()


def _before(line: Array) -> Array:
    """Return the previous piece of each piece's stream, by start; -1 for the first."""
    order = np.argsort(line, kind="stable")
    before = np.full(len(line), -1)
    follows = line[order[1:]] == line[order[:-1]]
    before[order[1:][follows]] = order[:-1][follows]
    return before


def _inner(call: Array) -> Array:
    """Return a mask of the pieces that are not the first of their call."""
    inner = call >= 0
    inner[np.unique(call, return_index=True)[1]] = False
    return inner


class Launched:
    """Look up the piece of a stream that was launched last before an instant."""

    def __init__(self, pieces: Pieces) -> None:
        self.lines = distinct(pieces.line).tolist()
        self._order, self._launched = {}, {}
        for line in self.lines:
            mine = np.flatnonzero(pieces.line == line)
            order = mine[np.argsort(pieces.launched[mine], kind="stable")]
            self._order[line], self._launched[line] = order, pieces.launched[order]

    def before(self, line: int, instants: Array) -> Array:
        """Return the piece of `line` launched last before each instant, or -1."""
        place = np.searchsorted(self._launched[line], instants, "left") - 1
        return np.where(place >= 0, self._order[line][np.maximum(place, 0)], -1)

    def queue(self, line: int) -> Array:
        """Return the pieces of `line` in order of launch."""
        return self._order[line]


def usual_median(values: Array, fallback: float) -> float:
    """Return the median, for durations that do not add up over a step; `fallback` without values."""
    return float(np.median(values)) if len(values) else fallback


def typical(
    values: Array, keys: Array, width: int, fallback: float, usual: Callable[[Array, float], float]
) -> Array:
    """Return `usual` of the values of each key, 0 to `width` - 1; of all values for keys with too few."""
    overall = usual(values, fallback)
    groups = [values[keys == key] for key in range(width)]
    return np.array([usual(own, overall) if len(own) >= ENOUGH else overall for own in groups], float)


def usual_mean(values: Array, fallback: float) -> float:
    """Return the mean of the values up to USUAL times their median; `fallback` without values."""
    if not len(values):
        return fallback
    return float(values[values <= max(USUAL * np.median(values), 1.0)].mean())
