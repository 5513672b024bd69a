"""Device work by its name: collectives, and the direction of copies."""

from __future__ import annotations

import re

import polars as pl

from fathom.sounding.communication import kernel_names

_COPY = re.compile(r"Memcpy (\w+)(?: \((\w+) -> (\w+)\))?")


def by_name(kernels: pl.DataFrame) -> pl.DataFrame:
    """Set the kind of collectives and the direction of copies, which only names show."""
    named = kernels.select("name").unique()
    known = named.with_columns(
        collective=pl.col("name").str.contains(kernel_names()),
        direction=pl.col("name").map_elements(_direction, return_dtype=pl.String),
    )
    joined = kernels.join(known, on="name", how="left", maintain_order="left")
    kind = pl.when((pl.col("kind") == "compute") & pl.col("collective")).then(pl.lit("collective"))
    return joined.with_columns(kind=kind.otherwise("kind")).drop("collective")


def _direction(name: str) -> str | None:
    """Return the direction in a copy's name: `HtoD pinned` for `Memcpy HtoD (Pinned -> Device)`."""
    match = _COPY.match(name)
    if not match:
        return None
    memory = next((side for side in match.groups()[1:] if side in ("Pinned", "Pageable")), None)
    return f"{match[1]} {memory.lower()}" if memory else match[1]
