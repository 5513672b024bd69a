"""One device's launches as arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from fathom.analysis.device import detail
from fathom.analysis.folding.states import Members, States, states_of
from fathom.analysis.intervals import Array


class Launches(NamedTuple):
    """Kernels, copies and sets of all bursts; `family` is an index into `labels`."""

    burst: Array
    starts: Array
    ends: Array
    family: Array
    labels: list[str]

    def states(self, burst: int, members: list[Members]) -> States:
        """The states of one burst."""
        mine = self.burst == burst
        return states_of(self.starts[mine], self.ends[mine], self.family[mine], members)


def launches_of(kernels: pl.DataFrame) -> Launches:
    """The rows of one device."""
    rows = kernels.with_columns(label=detail())
    labels = rows["label"].unique().sort().to_list()
    number = {label: place for place, label in enumerate(labels)}
    family = np.array([number[label] for label in rows["label"]], np.int64)
    burst = rows["burst"].fill_null(0).to_numpy()
    return Launches(burst, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy(), family, labels)
