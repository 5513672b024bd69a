"""Names and expressions that both formats of rocprofv3 share."""

from __future__ import annotations

import polars as pl

LAUNCHES, MARKERS = r"^HIP|^HSA", r"^MARKER"  # kinds of records: calls of the runtimes, and ranges of rocTX
_DIRECTIONS = {
    "HOST_TO_DEVICE": "HtoD",
    "DEVICE_TO_HOST": "DtoH",
    "DEVICE_TO_DEVICE": "DtoD",
    "HOST_TO_HOST": "HtoH",
}
NO_REGIONS = {"what": "regions", "why": "the results have no rocTX ranges; record with `--marker-trace`"}
NO_CALLS = {"what": "launches", "why": "the results have no calls of HIP; record with `--hip-trace`"}


def copy_name(name: str) -> pl.Expr:
    """Return the name of a copy, from the column `name` with its operation: MEMORY_COPY_HOST_TO_DEVICE."""
    direction = pl.col(name).str.extract(r"(\w+_TO_\w+)").str.replace("^(?:MEMORY_)?COPY_", "")
    return pl.lit("Memcpy ") + direction.replace_strict(
        _DIRECTIONS, default="unknown", return_dtype=pl.String
    )


def dims(sizes: list[str], of: list[str] | None = None) -> pl.Expr:
    """Return `8x1x1` of three columns, each divided by a column in `of`: a grid is counted in work-items."""
    counts = [pl.col(name) for name in sizes]
    if of:
        counts = [(size + pl.col(by) - 1) // pl.col(by) for size, by in zip(counts, of, strict=True)]
    return pl.concat_str(counts, separator="x")


def stream() -> pl.Expr:
    """Return the stream, or the queue if the results do not distinguish streams."""
    several = pl.col("stream_id").n_unique() > 1
    return pl.when(several).then("stream_id").otherwise(pl.coalesce("queue_id", "stream_id")).alias("stream")
