"""The alert rule: steps became slower than the program's own first clean steps, and stay so."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

from fathom.errors import BadInputError

BLOCKS = 5  # in which the steps of the rule are divided; each of them must be slower
LEARNED = 40  # blocks that define the baseline
LEAST_PERCENT = 1.0


@dataclass(frozen=True)
class Rule:
    """Slower by `percent` for `steps` steps."""

    percent: float
    steps: int = 50

    def __post_init__(self) -> None:
        if not LEAST_PERCENT <= self.percent < float("inf"):
            raise BadInputError(f"--alert takes at least {LEAST_PERCENT:g} percent, not {self.percent:g}.")
        if self.steps < BLOCKS:
            raise BadInputError(f"--alert-steps takes at least {BLOCKS} steps, not {self.steps}.")

    def __str__(self) -> str:
        return f"{self.percent:g} % slower for {self.steps} steps"


class Detector:
    """Takes the durations of clean steps, in order, and applies a rule to them.

    The steps are divided into blocks. The baseline is the median of the means of the first blocks, BLOCKS at
    least and LEARNED at most. An alert needs BLOCKS consecutive blocks whose means are all above it by the
    rule's percentage. So one long step raises no alert, and neither do marks of a host that launches some
    steps early. While an alert lasts, another begins if steps become slower by as much again.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.restart()

    def restart(self) -> None:
        """Forget the baseline, because the steps are not comparable with later ones."""
        self.baseline_ns: float | None = None
        self.alerting = False
        self._alerted_ns = 0.0  # the slowest block when the last alert began
        self._first: list[float] = []
        self._recent: deque[float] = deque(maxlen=BLOCKS)
        self._sum, self._count = 0, 0

    @property
    def recent_ns(self) -> float:
        """The mean step of the last BLOCKS blocks."""
        return sum(self._recent) / max(len(self._recent), 1)

    def add(self, ns: int, steps: int = 1) -> bool:
        """Add a step, or the sum of several in one block. Return whether an alert began or ended with it."""
        self._sum, self._count = self._sum + ns, self._count + steps
        if self._count * BLOCKS < self.rule.steps:
            return False
        block = self._sum / self._count
        self._sum, self._count = 0, 0
        self._recent.append(block)
        changed = self.baseline_ns is not None and self._changed(self.baseline_ns)
        if len(self._first) < LEARNED and not self.alerting:
            self._first.append(block)
            self.baseline_ns = median(self._first) if len(self._first) >= BLOCKS else None
        return changed

    def _changed(self, baseline: float) -> bool:
        slower, half = (1 + share * self.rule.percent / 100 for share in (1.0, 0.5))
        if len(self._recent) < BLOCKS:
            return False
        if min(self._recent) > slower * (self._alerted_ns if self.alerting else baseline):
            self.alerting, self._alerted_ns = True, max(self._recent)
            return True
        if self.alerting and max(self._recent) < half * baseline:
            self.alerting = False
            return True
        return False
