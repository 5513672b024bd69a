"""One device's launches as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from fathom.analysis.device import detail
from fathom.analysis.folding.states import Members, States, states_of
from fathom.analysis.intervals import Array

_NO_FUNCTIONS = ("copy", "set")


class Launches(NamedTuple):
    """Kernels, copies and sets of all bursts; `family` is an index into `labels`.

    `functions` are (kind, name) of those labels that are a name and a launch shape.
    """

    burst: Array
    starts: Array
    ends: Array
    family: Array
    labels: list[str]
    functions: dict[str, tuple[str, str]]

    def states(self, burst: int, members: list[Members]) -> States:
        """The states of one burst."""
        mine = self.burst == burst
        return states_of(self.starts[mine], self.ends[mine], self.family[mine], members)

    def relabelled(self, other: Mapping[str, str]) -> Launches:
        """With families under the labels that `other` gives them."""
        labels = sorted({other.get(label, label) for label in self.labels})
        place = np.array([labels.index(other.get(label, label)) for label in self.labels], np.int64)
        return self._replace(family=place[self.family], labels=labels, functions={})

    def lengths(self, labels: Sequence[str], bursts: Sequence[int]) -> dict[str, float]:
        """The mean length in ns of the launches of families within bursts, of those that ran there."""
        within = np.isin(self.burst, bursts)
        took = {
            label: (self.ends - self.starts)[within & (self.family == place)]
            for place, label in enumerate(self.labels)
            if label in labels
        }
        return {label: max(float(own.mean()), 1.0) for label, own in took.items() if len(own)}


def launches_of(kernels: pl.DataFrame) -> Launches:
    """The rows of one device."""
    rows = kernels.with_columns(label=detail())
    labels = rows["label"].unique().sort().to_list()
    number = {label: place for place, label in enumerate(labels)}
    family = np.array([number[label] for label in rows["label"]], np.int64)
    burst = rows["burst"].fill_null(0).to_numpy()
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    return Launches(burst, starts, ends, family, labels, _functions(rows))


def _functions(rows: pl.DataFrame) -> dict[str, tuple[str, str]]:
    launched = rows.filter(~pl.col("kind").is_in(_NO_FUNCTIONS)).select("label", "kind")
    split = [(label, kind, *label.rpartition(" ")) for label, kind in launched.unique().sort("label").rows()]
    return {label: (kind, name) for label, kind, name, _, shape in split if name and "·" in shape}
