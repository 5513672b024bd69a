"""Steps of a long run, counted instead of recorded one by one: windows that grow with the run.

A window holds a histogram of step lengths with exact sums, so that goodput and long steps stay right. Windows
last a fixed share of the time so far, so their number grows with the logarithm of the run's length.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain
from operator import sub
from typing import Any

SHORTEST_NS, SHARE = 60_000_000_000, 50  # a window lasts a minute, or the time so far / SHARE if longer
BINS = 4  # bits: sixteen bins for each power of two
WITHIN = ("compilation", "checkpoint")  # waits that are not part of a step's usual length


class Kind:
    """Totals of the steps of one kind. `samples` and `tokens` are None once those of a step are unknown."""

    def __init__(self) -> None:
        self.steps = 0
        self.samples: int | None = 0
        self.tokens: int | None = 0
        self.waits: dict[str, int] = {}
        self.bins: dict[int, list[int]] = {}  # shortest length in ns: steps, their total in ns

    def add(self, lengths: list[int], samples: int | None, tokens: int | None) -> None:
        """Add steps with these lengths in ns, each with as many samples and tokens."""
        count = len(lengths)
        self.steps += count
        self.samples = None if samples is None or self.samples is None else self.samples + count * samples
        self.tokens = None if tokens is None or self.tokens is None else self.tokens + count * tokens
        lengths.sort()
        at = 0
        while at < count:
            low, high = _bin(lengths[at])
            end = bisect_left(lengths, high, at)
            counted = self.bins.setdefault(low, [0, 0])
            counted[0] += end - at
            counted[1] += sum(lengths[at:end])
            at = end

    def row(self, name: str) -> list[Any]:
        """Return [name, steps, samples, tokens, waits, [[shortest ns, steps, total ns], …]]."""
        bins = [[low, *self.bins[low]] for low in sorted(self.bins)]
        return [name, self.steps, self.samples, self.tokens, self.waits, bins]


class Summary:
    """The present window of counted steps of `thread`. The first window opens with step k at `ns`."""

    def __init__(self, k: int, ns: int, source: str, thread: int, burst: int) -> None:
        self.thread = thread
        self._about = {"source": source, "thread": thread, "burst": burst}
        self._began = ns
        self._waits: dict[str, int] = {}  # of the open step
        self._open(k, ns)

    def _open(self, k: int, ns: int) -> None:
        self._k, self._start, self._last = k, ns, ns
        self._kinds: dict[str, Kind] = {}

    def add(self, times: list[int], kind: str, samples: int | None, tokens: int | None) -> None:
        """Count the steps that ended at these times, all alike but for their lengths."""
        lengths = list(map(sub, times, chain((self._last,), times)))
        self._last = times[-1]
        of_kind = self._kinds.get(kind) or self._kinds.setdefault(kind, Kind())
        if self._waits:
            waits, self._waits = self._waits, {}
            lengths[0] = max(lengths[0] - sum(waits.get(cause, 0) for cause in WITHIN), 0)
            for cause, ns in waits.items():
                of_kind.waits[cause] = of_kind.waits.get(cause, 0) + ns
        of_kind.add(lengths, samples, tokens)

    def wait(self, cause: str, ns: int) -> None:
        """Count a wait within the open step."""
        self._waits[cause] = self._waits.get(cause, 0) + ns

    @property
    def is_due(self) -> bool:
        """Whether the window has lasted long enough."""
        return self._last - self._start >= max(SHORTEST_NS, (self._start - self._began) // SHARE)

    @property
    def _count(self) -> int:
        return sum(kind.steps for kind in self._kinds.values())

    def take(self) -> dict[str, object] | None:
        """Return the window's record and open the next; None if it has no steps."""
        record, count = self.record(), self._count
        if record is not None:
            self._open(self._k + count, self._last)
        return record

    def record(self) -> dict[str, object] | None:
        """Return the window's record so far; None if it has no steps."""
        if not self._count:
            return None
        stretch = {"k": self._k, "n": self._count, "start": self._start, "end": self._last}
        kinds = [kind.row(name) for name, kind in self._kinds.items()]
        return {"t": "summary", **stretch, **self._about, "kinds": kinds}


def _bin(length: int) -> tuple[int, int]:
    """Return the shortest length of the bin of `length`, and that of the next bin."""
    width = 1 << max(length.bit_length() - BINS - 1, 0)
    low = length - length % width
    return low, low + width
