"""The contract of `fathom compare --json`. Fields are added, never renamed or dropped."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from fathom.analysis.results import Abstained

STEP_TIME = "the step's time"  # not compared if noise could change it by any factor
HOST_TIME = "small changes of the host's time"  # not compared on a busy host
ENOUGH = 8  # steps of a run, from which its noise is known well

Verdict = Literal["faster", "slower", "same", "inconclusive"]
CauseKind = Literal[
    "dtype", "shape", "kernel choice", "more launches", "fewer launches", "clocks", "library version",
    "environment", "machine", "command", "loader", "compiler",
]  # fmt: skip

# Causes that concern the whole program.
OF_PROGRAM: tuple[CauseKind, ...] = (
    "command", "library version", "environment", "machine", "loader", "compiler",
)  # fmt: skip


class ComparedRun(msgspec.Struct):
    """One recording of a side."""

    name: str
    step_ms: float
    steps: int  # from which step_ms is computed
    command: list[str] = []


class Cause(msgspec.Struct, frozen=True):
    """Something that differs between the sides, and the time of the entries that it can explain.

    `change_ms` is null if the difference concerns the whole program.
    """

    kind: CauseKind
    what: str  # dtype of aten::linear, sm clock, torch, OMP_NUM_THREADS …
    baseline: str
    candidate: str
    change_ms: float | None = None
    launches: tuple[float, float] | None = None  # per step, of a change in launches


class Change(msgspec.Struct):
    """One entry of the ledger on both sides; `change_ns` of all entries sum to that of the step.

    `band_ns` is the change that noise alone would stay within, from the entry's time in each step; null with
    too few steps. `moved` says that the change exceeds it.
    """

    entry: str
    detail: str  # of the candidate, or of the baseline if the candidate lacks the entry
    baseline_ns: int
    candidate_ns: int
    change_ns: int
    band_ns: float | None
    moved: bool
    aligned: str  # same, launch shape, dtype, op and module, op, line, baseline only, candidate only
    baseline_details: list[str] = []  # names that were aligned
    candidate_details: list[str] = []
    baseline_count: float | None = None  # pieces of work per step
    candidate_count: float | None = None
    op: str = ""
    ops: str = ""  # the op and the others that launch its kernels, on either side
    module: str = ""
    causes: list[Cause] = []

    @property
    def change_ms(self) -> float:
        """The change in milliseconds."""
        return self.change_ns / 1e6


class Figure(msgspec.Struct):
    """A figure of the whole step, a kernel's counter or a collective, on both sides.

    Rates, utilisation, energy and input are those of mean steps, even where median steps are compared.
    """

    group: str  # step, memory, energy, input, clocks, counters, collectives
    name: str
    unit: str
    baseline: float
    candidate: float
    band: float | None  # the change that noise alone would stay within; null if unknown
    moved: bool
    better: Literal["lower", "higher", ""] = ""
    of: str = ""  # the kernel family, or the collective
    why: str = ""  # the reason why the sides are not compared: the change means nothing
    at_least: list[str] = []  # sides whose value is a lower bound: baseline, candidate

    def widened(self, extra: float) -> Figure:
        """Return the figure with more noise, in its unit."""
        if self.band is None:
            return self
        band = self.band + extra
        return replace(self, band=band, moved=self.moved and abs(self.candidate - self.baseline) > band)


class SoundingComparison(msgspec.Struct):
    """A comparison of recordings: the step's change with its verdict, and the entries that add up to it.

    `ratio` is the candidate's step over the baseline's, with its interval of 99 % confidence. `within_runs`
    says that a side is a single recording, so the variation between runs is assumed, not measured.
    """

    verdict: Verdict
    headline: str
    basis: str  # clean median, clean mean, profiled mean
    kind: str  # of the steps
    baseline_ns: int
    candidate_ns: int
    change_ns: int
    ratio: float
    interval: list[float] | None
    margin: float
    within_runs: bool
    baseline: list[ComparedRun]
    candidate: list[ComparedRun]
    entries: list[Change]  # largest change first
    causes: list[Cause]  # largest change first, then those of the whole program
    figures: list[Figure]
    abstained: list[Abstained]
    device: str = ""
    damaged: list[str] = []  # recordings with damaged tables
    few_steps: int | None = None  # steps of the shortest recording, if too few to decide small changes
    few_windows: int | None = None  # the same of the recorded steps behind the entries

    @property
    def moved(self) -> list[Change]:
        """The entries that changed by more than noise."""
        return [change for change in self.entries if change.moved]
