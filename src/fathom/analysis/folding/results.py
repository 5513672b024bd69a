"""What folding finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from fathom.analysis.results import Abstained


class Alignment(NamedTuple):
    """How one burst's samples lie on the kernels' clock: kernel time = sample time + shift.

    `shift_ns` holds at `middle_ns`; `drift_ppm` is how much it grows with time, 0 where none was seen.
    `explained` is the share of the counters' variance that the kernels explain there. `why` says why the
    burst could not be aligned, and is empty where it could. A `steady` one need not be: its `shift_ns` is 0
    and its `error_ns` how far the clocks may lie apart.
    """

    device: int
    burst: int
    shift_ns: float
    error_ns: float
    drift_ppm: float
    middle_ns: int
    explained: float
    samples: int
    why: str = ""
    steady: bool = False


class Pool(NamedTuple):
    """Families of one function that are told together as `label`, since each launch shape is too rare.

    Some may have rows of their own all the same: those that ran often enough, but not all the time.
    """

    device: int
    label: str
    families: tuple[str, ...]


class Folding(NamedTuple):
    """Rows of the table `counters`, what could not be told, and how each burst was aligned.

    Families of a pool that have no sampled rows of their own are told by the rows of its label.
    """

    frame: pl.DataFrame
    abstained: list[Abstained]
    alignment: list[Alignment]
    pools: Sequence[Pool] = ()
