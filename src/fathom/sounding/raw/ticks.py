"""The clock of samples: nanoseconds since the epoch, or ticks of a counter whose rate the data tell.

While Kineto traces, the driver stamps samples with the clock that Kineto registered. Each burst has two
anchors, the host's times at its start and its end; bursts that lie apart tell the rate best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

SLACK_NS = 1_000_000_000  # a clock further off than this is no clock of the host
APART_NS = 1_000_000_000  # starts this far apart give a rate to about 1 in 10,000 or better
NEAR = 0.2  # relative; beyond it two estimates of one rate contradict each other
TRUSTED = 0.03  # what the latencies of start and stop may amount to
LEAST_FILLED = 0.05  # of a burst by its samples; the buffer may have been full before its end


@dataclass(frozen=True)
class Stamped:
    """The complete samples of one burst as delivered (uint64), and the host's anchors in ns."""

    starts: np.ndarray
    ends: np.ndarray
    started: tuple[int, int]
    stopped: tuple[int, int]
    interval_ns: int | None  # None: counted in cycles, whose length is not known

    @property
    def in_nanoseconds(self) -> bool:
        """Whether the stamps lie between the anchors as they are."""
        first, last = int(self.starts[0]), int(self.ends[-1])
        return self.started[0] - SLACK_NS <= first and last <= self.stopped[1] + SLACK_NS

    @property
    def begun(self) -> float:
        """The host's time at which sampling began: as the call that starts it returns, about 30 µs before."""
        return float(self.started[1])

    def by_interval(self) -> float | None:
        """Ticks a nanosecond if the interval was kept; None where it was counted in cycles."""
        return float(np.median(self.ends - self.starts)) / self.interval_ns if self.interval_ns else None

    def by_anchors(self) -> float:
        """Ticks a nanosecond if the samples fill the burst: too few where the last ones were lost."""
        span = sum(self.stopped) / 2 - self.begun
        return (int(self.ends[-1]) - int(self.starts[0])) / span if span > 0 else 0.0

    def own_rate(self) -> float | None:
        """Ticks a nanosecond from this burst alone; None where its stamps contradict its anchors."""
        filling, keeping = self.by_anchors(), self.by_interval()
        if keeping is None or keeping <= 0:
            return filling if filling > 0 else None
        filled = filling / keeping
        if LEAST_FILLED <= filled <= 1 + TRUSTED:
            return keeping
        return filling if 1 < filled <= 1 + NEAR else None

    def holds(self, ticks_per_ns: float) -> bool:
        """Whether the samples, so long, end before the host had stopped to sample."""
        length = (int(self.ends[-1]) - int(self.starts[0])) / ticks_per_ns
        return self.begun + length * (1 - TRUSTED) <= self.stopped[1]


def rate(bursts: Sequence[Stamped]) -> float | None:
    """Ticks a nanosecond of all bursts that do not stamp in nanoseconds; None where the data do not tell."""
    ticking = [burst for burst in bursts if not burst.in_nanoseconds]
    own = [found for burst in ticking if (found := burst.own_rate()) is not None]
    if not own:
        return None
    usual = median(own)
    across = _across(ticking)
    return across if across is not None and abs(across / usual - 1) <= NEAR else usual


def _across(bursts: Sequence[Stamped]) -> float | None:
    """The median slope over pairs of bursts: a start is uncertain by little against it."""
    slopes = [
        (int(later.starts[0]) - int(earlier.starts[0])) / (later.begun - earlier.begun)
        for place, earlier in enumerate(bursts)
        for later in bursts[place + 1 :]
        if later.begun - earlier.begun >= APART_NS
    ]
    return median(slopes) if slopes else None


def nanoseconds(burst: Stamped, ticks_per_ns: float) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends in ns since the epoch (int64): the first sample begins where the host began."""
    if burst.in_nanoseconds:
        return burst.starts.astype(np.int64), burst.ends.astype(np.int64)
    first, begun = burst.starts[0], round(burst.begun)

    def moved(stamps: np.ndarray) -> np.ndarray:
        return begun + np.rint((stamps - first) / ticks_per_ns).astype(np.int64)

    return moved(burst.starts), moved(burst.ends)
