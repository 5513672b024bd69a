"""Step lengths: whether they have settled, and whether clean steps became shorter."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import sub

TOLERANCE = 0.1
LASTING = 0.2
SMALLEST, LARGEST = 2, 8  # steps in a window
ENOUGH_LEAST, ENOUGH_MOST, ENOUGH_NS = 8, 12, 2_000_000_000  # steps, steps, time before the first timeline
COMPLETE_LEAST, COMPLETE_NS = 20, 2_000_000_000  # steps and time that a complete recording should have
LONG_NS = 50_000_000  # longer steps get few windows in a first burst, because they may hold many events
DRIFT_STEPS = 20
KEPT = 256  # durations of steps that are added together


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle ones."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def settled(durations: Sequence[float]) -> bool:
    """Return whether the last two windows' medians of `durations` agree within 10 % or their noise."""
    width = min(LARGEST, max(SMALLEST, len(durations) // 4))
    if len(durations) < 2 * width:
        return False
    before, after = durations[-2 * width : -width], durations[-width:]
    middle = median(after)
    noise = median([abs(value - middle) for value in after])
    return abs(median(before) - middle) <= max(TOLERANCE * middle, 2 * noise)


def quicker(before: float, durations: Sequence[float]) -> bool:
    """Return whether the median of `durations` is below `before` by more than 20 % and their noise."""
    middle = median(durations)
    noise = median([abs(value - middle) for value in durations])
    return before - middle > max(LASTING * middle, 2 * noise)


class CleanSteps:
    """Durations of clean steps in ns, by burst. `refer_to` sets the reference for later steps."""

    def __init__(self) -> None:
        self.count = self._total_ns = 0
        self._lengths: deque[int] = deque(maxlen=4096)
        self._on_device: dict[int, deque[float]] = {}  # by burst
        self._reference_ns, self._reference = 0.0, 0
        self.doubtful = False  # steps became shorter, but their lengths on the device are unknown yet

    def add(self, length_ns: int) -> None:
        """Add a step."""
        self._lengths.append(length_ns)
        self.count += 1
        self._total_ns += length_ns

    def add_all(self, times: list[int], before_ns: int) -> None:
        """Add the steps that ended at these times, of which the first began at `before_ns`; keep the last."""
        last = times[-KEPT - 1 :] if len(times) > KEPT else [before_ns, *times]
        self._lengths.extend(map(sub, last[1:], last))
        self.passed(len(times), times[-1] - before_ns)

    def passed(self, count: int, ns: int) -> None:
        """Count steps that took `ns` in total, without keeping their durations."""
        self.count += count
        self._total_ns += ns

    def timed(self, burst: int, lengths: list[float]) -> None:
        """Add device durations in ns of steps of `burst`."""
        self._on_device.setdefault(burst, deque(maxlen=DRIFT_STEPS)).extend(lengths)

    @property
    def step_ns(self) -> float:
        """The median step duration in ns; 0.0 if there is no step yet."""
        return median(list(self._lengths)) if self._lengths else 0.0

    @property
    def slow_ns(self) -> int:
        """The 99th percentile of step durations, in ns."""
        return sorted(self._lengths)[int(0.99 * (len(self._lengths) - 1))]

    @property
    def are_long(self) -> bool:
        """Whether steps take more than LONG_NS on average."""
        return self._total_ns > LONG_NS * self.count

    @property
    def are_enough(self) -> bool:
        """Whether the first timeline may begin."""
        return self.count >= (ENOUGH_LEAST if self._total_ns >= ENOUGH_NS else ENOUGH_MOST)

    @property
    def are_complete(self) -> bool:
        """Whether there are enough clean steps for a complete recording."""
        return self.count >= COMPLETE_LEAST and self._total_ns >= COMPLETE_NS

    def refer_to(self, burst: int) -> None:
        """Compare later steps with the median so far, and their device durations with those of `burst`."""
        self._reference_ns, self._reference = self.step_ns, burst

    def forget_all_but(self, count: int) -> None:
        """Keep only the last `count` durations, because earlier ones differ."""
        self._lengths = deque(list(self._lengths)[-count:], self._lengths.maxlen)

    def became_shorter(self, burst: int, steps: int) -> bool:
        """Return whether the last of `steps` steps of `burst` are shorter than the reference."""
        self.doubtful = False
        if steps <= 2 * DRIFT_STEPS:
            return False
        shorter = quicker(self._reference_ns, list(self._lengths)[-DRIFT_STEPS:])
        return shorter and self._device_agrees(burst, steps)

    def _device_agrees(self, burst: int, steps: int) -> bool:
        """Return whether steps became shorter on the device too, or the device was not timed.

        A host that launches faster does not make steps shorter. Device durations may arrive late.
        """
        before, now = self._on_device.get(self._reference), self._on_device.get(burst)
        self.doubtful = bool(before) and not now and steps <= 4 * DRIFT_STEPS
        if not before or not now:
            return not self.doubtful
        return quicker(median(list(before)), list(now))
