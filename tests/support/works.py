"""Work of kernel families and owners of kernels, for tests that join tables by hand."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.work import connect
from fathom.analysis.work.families import work_by_family, works_in_windows
from fathom.analysis.work.links import Links
from fathom.machine import Limits


def family_work(
    ops: pl.DataFrame,
    launches: pl.DataFrame,
    kernels: pl.DataFrame,
    windows: pl.DataFrame,
    steps: pl.DataFrame | None = None,
    limits: Limits | None = None,
    links: Links | None = None,
) -> pl.DataFrame:
    """Return the work by entry and kernel family, as a mean over the used `windows` (start_ns, end_ns, used).

    See `work_by_family`, and `works_in_windows` for the arguments.
    """
    return work_by_family(works_in_windows(ops, launches, kernels, windows, steps, limits, links), windows)


def kernel_ops(
    ops: pl.DataFrame, launches: pl.DataFrame, kernels: pl.DataFrame, steps: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return a row per kernel: kernel (row number), op and owner (IDs), module, source (file:line), why.

    `why` is the reason for a missing owner. If a burst has no shapes and stacks, owner, module and source
    come from the same position of a burst that has them; for a replayed graph, they come from its capture.
    """
    links = connect(ops, launches, kernels, steps)
    owner = _at(ops, links.owner)
    op = _at(ops, links.op)
    return pl.DataFrame(
        {
            "kernel": np.arange(kernels.height),
            "op": op["id"],
            "owner": owner["id"],
            "module": pl.select(pl.coalesce(op["module"], owner["module"])).to_series(),
            "source": pl.select(pl.coalesce(op["source"], owner["source"])).to_series(),
            "why": links.why,
        }
    )


def _at(ops: pl.DataFrame, rows: np.ndarray) -> pl.DataFrame:
    """Return ID, module and source of the ops at `rows`; null for NONE."""
    wanted = pl.DataFrame({"row": rows})
    table = (
        ops.select("id", "module", "source").with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    )
    return wanted.join(table, on="row", how="left", maintain_order="left")
