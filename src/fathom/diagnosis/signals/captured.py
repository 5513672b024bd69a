"""Decode steps that run as CUDA graphs, and those of other batch sizes, which launch each kernel."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Captured
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

DECODE = "decode"
MOST, FEW = 0.5, 0.1  # of a step's kernels: a step as a graph (with parts outside of it), and one without


@signal("host.captured")
def captured(recorded: Recorded) -> Captured:
    """Return how decode steps with graphs and without differ. Raises UnknownSignalError for other steps.

    Only steps of one kind are alike but for their batch size: a prefill runs without graphs on purpose.
    """
    windows = recorded.account.windows
    if windows is None or windows.kind != DECODE:
        raise UnknownSignalError("the steps are not marked as decodes")
    rows = recorded.kernels.filter(kind="compute")
    if "graph_node" not in rows.columns:
        raise UnknownSignalError("kernels were recorded without their graphs")
    rows = rows.with_columns(window=recorded.window(rows)).filter(pl.col("window") >= 0)
    by_step = rows.group_by("window").agg(
        graphed=pl.col("graph_node").is_not_null().mean(), ns=(pl.col("end_ns") - pl.col("start_ns")).sum()
    )
    lengths = (windows.ends - windows.starts)[windows.used]
    at = by_step["window"].to_numpy()
    idle = np.maximum(lengths[at] - by_step["ns"].to_numpy(), 0) / NS_PER_MS
    graphed, eager = (by_step["graphed"] > MOST).to_numpy(), (by_step["graphed"] < FEW).to_numpy()
    sizes = _sizes(recorded, windows.steps[windows.used][at])
    both = graphed.any() and eager.any()
    each = max(float(idle[eager].mean() - idle[graphed].mean()), 0.0) if both else 0.0
    return Captured(
        int(graphed.sum()),
        int(eager.sum()),
        float(idle[eager].sum() / idle.sum()) if idle.sum() else 0.0,
        each,
        each * int(eager.sum()) / recorded.steps,
        max((size for size in sizes[graphed] if size), default=None),
        min((size for size in sizes[eager] if size), default=None),
    )


def _sizes(recorded: Recorded, steps: np.ndarray) -> np.ndarray:
    """Return the samples of each step, the requests of its batch; None where they are not known."""
    known = recorded.table("steps").filter(pl.col("parent").is_null()).select("step", "samples")
    of = dict(known.drop_nulls().iter_rows())
    return np.array([of.get(step) for step in steps.tolist()], dtype=object)
