"""Convert the times of samples: nanoseconds since the epoch, or ticks whose rate is derived from the data.

While Kineto traces, the driver uses the clock that Kineto registered. Each burst has two anchors: the host's
times around the calls that start and stop it. On a busy host these calls may take 80 ms, and sampling begins
at an unknown time within the start call. All bursts of a process share a clock, so bursts with short calls
determine when the others began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np

SLACK_NS = 1_000_000_000  # a clock that differs by more from the host's is another clock
DISTANT_NS = 1_000_000_000  # distance between starts that gives the rate to about 1 in 10,000
NEAR = 0.2  # relative difference beyond which two estimates of a rate contradict each other
TRUSTED = 0.03  # share of a burst that the latencies of its start and stop may take
LEAST_FILLED = 0.05  # least share of a burst covered by samples, as the buffer may fill up early
QUICK_NS = 1_000_000  # longest start call that gives the start of sampling well enough
NEARBY_NS = 60_000_000_000  # distance between bursts within which clocks drift little
WANDER_NS = 500_000  # most drift within that distance


@dataclass(frozen=True)
class Stamped:
    """The times of the complete samples of one burst, and the host's anchors (start, end of a call) in ns."""

    starts: np.ndarray
    ends: np.ndarray
    started: tuple[int, int]
    stopped: tuple[int, int]
    interval_ns: int | None  # sampling interval; None: it is in cycles of unknown length

    @property
    def in_nanoseconds(self) -> bool:
        """Whether the times of the samples are ns since the epoch: they are between the anchors."""
        first, last = int(self.starts[0]), int(self.ends[-1])
        return self.started[0] - SLACK_NS <= first and last <= self.stopped[1] + SLACK_NS

    @property
    def begun(self) -> float:
        """The end of the start call in ns; sampling began before it, by 0 to 30 µs if it was quick."""
        return float(self.started[1])

    @property
    def took(self) -> int:
        """The duration in ns of the start call, within which sampling began."""
        return self.started[1] - self.started[0]

    @property
    def quick(self) -> bool:
        """Whether the start call was short enough to give the start of sampling."""
        return self.took <= QUICK_NS

    @property
    def _ticks(self) -> int:
        return int(self.ends[-1]) - int(self.starts[0])

    def by_interval(self) -> float | None:
        """Return ticks per ns, from the sampling interval; None if the interval is in cycles."""
        return float(np.median(self.ends - self.starts)) / self.interval_ns if self.interval_ns else None

    def by_anchors(self) -> float:
        """Return ticks per ns if the samples fill the burst; too low if the last samples were lost."""
        span = sum(self.stopped) / 2 - self.begun
        return self._ticks / span if span > 0 else 0.0

    def kept_interval(self) -> float | None:
        """Return ticks per ns from the interval; None if the samples would not fit between the anchors."""
        keeping = self.by_interval()
        if keeping is None or keeping <= 0 or not self.holds(keeping):
            return None
        return keeping if self.by_anchors() >= LEAST_FILLED * keeping else None

    def own_rate(self) -> float | None:
        """Return ticks per ns from this burst alone; None if its times contradict its anchors."""
        kept, keeping, filling = self.kept_interval(), self.by_interval(), self.by_anchors()
        if kept is not None:
            return kept
        if keeping is None or keeping <= 0:
            return filling if filling > 0 else None
        return filling if 1 < filling / keeping <= 1 + NEAR else None

    def holds(self, ticks_per_ns: float) -> bool:
        """Return whether, at this rate, the samples fit between the calls that start and stop sampling."""
        return self.started[0] + self._ticks / ticks_per_ns * (1 - TRUSTED) <= self.stopped[1]


class Start(NamedTuple):
    """The latest start of a burst's first sample in ns since the epoch, and the uncertainty before it."""

    at: int
    unsure_ns: int


def rate(bursts: Sequence[Stamped]) -> float | None:
    """Return ticks per ns of all bursts whose times are in ticks; None if the data do not determine it."""
    ticking = [burst for burst in bursts if not burst.in_nanoseconds]
    own = [estimate for burst in ticking if (estimate := burst.own_rate()) is not None]
    if not own:
        return None
    usual = median(own)
    across = _across([burst for burst in ticking if burst.quick])
    if across is None and not any(burst.kept_interval() for burst in ticking):
        across = _across(ticking)
    return across if across is not None and abs(across / usual - 1) <= NEAR else usual


def _across(bursts: Sequence[Stamped]) -> float | None:
    """Return the median rate over pairs of distant bursts, for which uncertain starts matter little."""
    slopes = [
        (int(later.starts[0]) - int(earlier.starts[0])) / (later.begun - earlier.begun)
        for place, earlier in enumerate(bursts)
        for later in bursts[place + 1 :]
        if later.begun - earlier.begun >= DISTANT_NS
    ]
    return median(slopes) if slopes else None


def start_of(burst: Stamped, bursts: Sequence[Stamped], ticks_per_ns: float) -> Start:
    """Return when a burst in ticks began, from its own start call if quick, else from all nearby bursts.

    Ticks give the distances between bursts. Each burst began within its start call and ended before its stop
    call returned. The range of starts that fits all of them is the uncertainty. If none fits, the bursts do
    not share a clock, and the burst is placed by its own calls.
    """
    alone = Start(burst.started[1], burst.took)
    if burst.quick:
        return alone
    nearby = [b for b in bursts if abs(b.begun - burst.begun) <= NEARBY_NS and not b.in_nanoseconds]
    return _allowed(burst, nearby, ticks_per_ns) or _allowed(burst, [burst], ticks_per_ns) or alone


def _allowed(burst: Stamped, bursts: Sequence[Stamped], ticks_per_ns: float) -> Start | None:
    """Return when the burst began, by the calls of all `bursts`; None if they contradict each other."""
    origin, first = burst.started[1], int(burst.starts[0])
    latest, earliest = [], []
    for other in bursts:
        after, until = (
            round((int(ticks) - first) / ticks_per_ns) for ticks in (other.starts[0], other.ends[-1])
        )
        latest += [other.started[1] - origin - after, other.stopped[1] - origin - until]
        earliest.append(other.started[0] - origin - after)
    if max(earliest, default=0) - min(latest, default=0) > WANDER_NS or not bursts:
        return None
    return Start(origin + min(latest), max(min(latest) - max(earliest), 0))


def nanoseconds(
    burst: Stamped, ticks_per_ns: float, began: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and ends of the samples in ns since the epoch (int64).

    `began` is the start of the first sample, by default the time at which the start call returned.
    """
    if burst.in_nanoseconds:
        return burst.starts.astype(np.int64), burst.ends.astype(np.int64)
    first, begun = burst.starts[0], round(burst.begun if began is None else began)

    def moved(stamps: np.ndarray) -> np.ndarray:
        return begun + np.rint((stamps - first) / ticks_per_ns).astype(np.int64)

    return moved(burst.starts), moved(burst.ends)
