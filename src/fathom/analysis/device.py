"""The work of one device as arrays, with the host's call that launched each piece."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.columns import filled
from fathom.analysis.entries import Entry
from fathom.analysis.intervals import Array

# Classes of device work in the ledger's order of precedence. COMMUNICATION is a collective whose peers are
# unknown. If they are known, it is WAITING until the last peer arrives, and MOVING from then on.
COMPUTE, COMMUNICATION, MOVING, WAITING, COPY = range(5)
ENTRIES = (
    Entry.COMPUTE,
    Entry.COMMUNICATION,
    Entry.MOVING_BYTES,
    Entry.WAITING_FOR_PEERS,
    Entry.COPY,
)
_CLASSES = {"collective": COMMUNICATION, "moving": MOVING, "waiting": WAITING, "copy": COPY, "set": COPY}
BEFORE_ALL = np.iinfo(np.int64).min // 4  # time of launches before the recording
COLUMNS = [
    "device",
    "stream",
    "correlation",
    "kind",
    "name",
    "family",
    "direction",
    "start_ns",
    "end_ns",
    "burst",
]


class DeviceWork(msgspec.Struct):
    """Pieces of one device's work, sorted by start, then by launch. Times in ns.

    `launched` is the start of the launching call, `thread` its thread (-1 if unknown). `known` is False if
    the call is missing although recording had begun; `launched` is then the start of the piece.
    """

    starts: Array
    ends: Array
    stream: Array
    burst: Array
    group: Array  # index into groups
    groups: list[tuple[int, str]]  # (class, detail)
    launched: Array
    thread: Array
    known: Array
    usual_stream: int | None  # the stream with the most compute time

    @property
    def classes(self) -> Array:
        """The class of each group."""
        return np.array([kind for kind, _ in self.groups], np.int64)

    def of(self, burst: int) -> DeviceWork:
        """Return the pieces of one burst."""
        return self.only(self.burst == burst)

    def only(self, rows: Array) -> DeviceWork:
        """Return the pieces that a mask selects."""
        arrays = ("starts", "ends", "stream", "burst", "group", "launched", "thread", "known")
        return DeviceWork(
            **{name: getattr(self, name)[rows] for name in arrays},
            groups=self.groups,
            usual_stream=self.usual_stream,
        )


def join_launches(kernels: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Return `kernels` with the time (`launched`) and thread (`launcher`) of the launch; null if unknown."""
    calls = (
        launches.drop_nulls("correlation")
        .sort("start_ns")
        .unique(["burst", "correlation"], keep="first")
        .select("burst", "correlation", launched="start_ns", launcher="thread")
    )
    return kernels.join(calls, on=["burst", "correlation"], how="left")


def device_work(kernels: pl.DataFrame, usual: int | None = None) -> DeviceWork:
    """Return one device's pieces from the output of `join_launches`, except those without a duration.

    If the `usual` stream is given, pieces are not grouped; boundaries of replays need no groups.
    """
    rows = kernels.filter(pl.col("end_ns") > pl.col("start_ns")).with_columns(_launched())
    rows = _at_arrival(rows).filter(pl.col("end_ns") > pl.col("start_ns")).sort(_BY)
    groups, index = _groups(rows) if usual is None else ([], np.zeros(len(rows), np.int64))
    return DeviceWork(
        rows["start_ns"].to_numpy(),
        rows["end_ns"].to_numpy(),
        filled(rows["stream"], -1).to_numpy(),
        filled(rows["burst"], 0).to_numpy(),
        index,
        groups,
        rows["launched_at"].to_numpy(),
        filled(rows["launcher"], -1).to_numpy(),
        rows["launch_known"].to_numpy(),
        _usual_stream(rows) if usual is None else usual,
    )


_BY = ["start_ns", "launched_at"]


def _at_arrival(rows: pl.DataFrame) -> pl.DataFrame:
    """Split collectives in two at the arrival of the last peer, if it is known."""
    if "arrived_ns" not in rows.columns:
        return rows
    met = rows.filter(pl.col("arrived_ns").is_not_null())
    waiting = met.with_columns(end_ns="arrived_ns", kind=pl.lit("waiting"))
    moving = met.with_columns(start_ns="arrived_ns", kind=pl.lit("moving"))
    return pl.concat([rows.filter(pl.col("arrived_ns").is_null()), waiting, moving])


def _launched() -> list[pl.Expr]:
    """Return the expressions `launched_at` and `launch_known`.

    Correlation IDs increase. Work with an ID below the first recorded call's was launched before it.
    """
    first = pl.col("correlation").filter(pl.col("launched").is_not_null()).min().over("burst")
    before = pl.col("launched").is_null() & (pl.col("correlation") < first).fill_null(False)
    at = pl.when(before).then(BEFORE_ALL).otherwise(pl.col("launched"))
    return [
        pl.coalesce(at, pl.col("start_ns")).alias("launched_at"),
        (before | pl.col("launched").is_not_null()).alias("launch_known"),
    ]


def detail() -> pl.Expr:
    """Return the detail of a piece within its entry: its family, a copy's direction, or "set"."""
    kind = pl.col("kind")
    copies = pl.when(kind == "copy").then(pl.col("direction")).otherwise(pl.col("family"))
    return pl.when(kind == "set").then(pl.lit("set")).otherwise(copies).fill_null("")


def _groups(rows: pl.DataFrame) -> tuple[list[tuple[int, str]], Array]:
    """Return the distinct (class, detail) of the pieces, and each piece's index into them."""
    kind = pl.col("kind").replace_strict(_CLASSES, default=COMPUTE, return_dtype=pl.Int8)
    keys = rows.select(kind=kind, detail=detail())
    known = keys.unique(maintain_order=True).with_row_index("group")
    index = keys.join(known, on=["kind", "detail"], how="left", maintain_order="left")["group"]
    return list(known.select("kind", "detail").iter_rows()), index.to_numpy().astype(np.int64)


def _usual_stream(rows: pl.DataFrame) -> int | None:
    """Return the stream with the most compute time, or with the most work if nothing computes."""
    if rows.is_empty():
        return None
    computing = rows.filter(~pl.col("kind").is_in(list(_CLASSES)))
    busy = (
        (rows if computing.is_empty() else computing)
        .group_by("stream")
        .agg(time=(pl.col("end_ns") - pl.col("start_ns")).sum())
    )
    return busy.sort("time", "stream", descending=[True, False])["stream"].fill_null(-1)[0]
