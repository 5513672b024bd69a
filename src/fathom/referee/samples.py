"""Measurements: the samples of blocks, and the blocks of a race."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fathom.referee.compare.decode import Saved
from fathom.referee.sides import BASELINE
from fathom.referee.verdict import Reason
from fathom.timing import Ratio, compare


@dataclass
class Block:
    """One block. `samples`: ns per call, by condition of the cache; `kept`: the result of a timed call."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    discarded: Counter[str] = field(default_factory=Counter)
    clock_mhz: float | None = None
    reasons: list[Reason] = field(default_factory=list)
    held_seed: int | None = None  # seed of the call whose result the process keeps
    kept: tuple[int, Saved] | None = None  # that seed, and the result
    notes: list[str] = field(default_factory=list)


@dataclass
class Race:
    """All blocks in order, and reasons to refuse the candidate."""

    baseline: list[Block] = field(default_factory=list)
    candidate: list[Block] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)

    def of(self, side: str) -> list[Block]:
        return self.baseline if side == BASELINE else self.candidate

    def ratio(self, condition: str) -> Ratio | None:
        sides = ([b.samples.get(condition, []) for b in blocks] for blocks in (self.baseline, self.candidate))
        return compare(*sides)

    @property
    def conditions(self) -> list[str]:
        return list(self.baseline[0].samples) if self.baseline else []
