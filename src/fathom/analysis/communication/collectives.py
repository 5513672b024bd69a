"""Every piece of communication of a device, with its operation, size and group."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.communication.operations import RecordedCall, recorded_calls
from fathom.analysis.work import NONE, Links
from fathom.sounding import identify_collective

PEER = "PtoP"  # direction of copies between devices, as UCX, NIXL and symmetric memory make them
COPIES = "copy engine"
CALL = {
    "operation": pl.String, "bytes": pl.Int64, "dtype": pl.String, "ranks": pl.Int64, "group": pl.String,
    "members": pl.String, "called": pl.String, "sent": pl.Int64, "received": pl.Int64,
}  # fmt: skip
_KEPT = ["start_ns", "end_ns", "stream", "phase", "name", "family"]


def communicates() -> pl.Expr:
    """Return whether a kernel communicates: collectives, and copies between devices."""
    peers = (pl.col("kind") == "copy") & pl.col("direction").str.starts_with(PEER)
    return (pl.col("kind") == "collective") | peers.fill_null(False)


def collectives_of(kernels: pl.DataFrame, links: Links, ops: pl.DataFrame) -> pl.DataFrame:
    """Return the pieces of communication among `kernels`, which `links` connects with `ops`.

    The columns are those of CALL, `library`, the kernel's, the `thread` of the call, and `arrived_ns`, null
    if the peers are unknown.
    """
    arrived = pl.col("arrived_ns") if "arrived_ns" in kernels.columns else pl.lit(None, pl.Int64)
    mine = kernels.with_row_index("row").filter(communicates())
    rows = mine["row"].to_numpy()
    at = np.where(links.op[rows] >= 0, links.op[rows], links.owner[rows]) if len(rows) else rows
    calls = recorded_calls(ops, links.parent, at)
    unit = pl.DataFrame({"owner": links.owner[rows], "instance": links.instance[rows]})
    pieces = unit.select(pl.when(pl.col("owner") != NONE).then(pl.len().over("owner", "instance")))
    named = _named(mine, calls)
    threads = ops["thread"].to_list()
    thread = pl.Series([threads[row] if row != NONE else None for row in at.tolist()], dtype=pl.Int64)
    return (
        mine.select(*_KEPT, arrived_ns=arrived, moved="bytes", thread=thread)
        .hstack(named)
        .select(
            *_KEPT,
            "arrived_ns",
            "thread",
            "library",
            *(name for name in CALL if name != "bytes"),
            # The kernels of one call share its bytes.
            bytes=pl.coalesce(pl.col("bytes") // pieces.to_series().fill_null(1), "moved"),
        )
    )


def _named(kernels: pl.DataFrame, calls: list[RecordedCall]) -> pl.DataFrame:
    """Return the library and the call, or the operation by the kernel's name if no call was recorded."""
    named = [
        (COPIES, "send_recv") if kind == "copy" else identify_collective(name)
        for kind, name in kernels.select("kind", "name").iter_rows()
    ]
    rows = [
        (library, call.operation or shown, *call[1:])
        for (library, shown), call in zip(named, calls, strict=True)
    ]
    return pl.DataFrame(rows, schema={"library": pl.String, **CALL}, orient="row")
