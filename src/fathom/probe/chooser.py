"""Choose the event that marks the steps: the highest-ranking source that keeps firing."""

from __future__ import annotations

from collections import Counter, deque
from itertools import pairwise
from typing import NamedTuple

RANK = {"mark": 5, "engine": 4, "optimizer": 3, "replay": 2, "loader": 1, "forward": 0}
BY_OPTION = {
    "mark": {"mark"},
    "engine": {"mark", "engine"},
    "optimizer": {"mark", "optimizer", "replay"},
    "loader": {"mark", "loader"},
    "forward": {"mark", "forward"},
    "none": set(),
}
# How often a source must fire before it is chosen: lower ones wait for a higher one to appear.
PATIENCE = {"mark": 1, "engine": 1, "optimizer": 2, "replay": 8, "loader": 8, "forward": 8}
INFERENCE_PATIENCE = 4  # without gradients, no optimizer is expected
STALE_REPLAYS = 12  # replays since the last optimizer step: the optimizer is now in the graph
DEAD = 10  # longest pauses without a replay while other graphs run: the graph was captured again


class StepSignal(NamedTuple):
    """An event in the program that may open a step. `key` distinguishes instances."""

    source: str
    key: int
    ns: int
    thread: int
    grad: bool = True
    kind: str | None = None
    samples: int | None = None
    tokens: int | None = None
    query: int | None = None  # ids per sample, if the step received a matrix of them


Clock = tuple[str, int]


class Chooser:
    """Receives every signal in order. `clock` is the chosen (source, key); a higher source may replace it."""

    def __init__(self, step_on: str = "auto") -> None:
        self.allowed = BY_OPTION.get(step_on, set(RANK))
        self.clock: Clock | None = None
        self.history: deque[StepSignal] = deque(maxlen=512)
        self._counts: dict[str, Counter[int]] = {source: Counter() for source in RANK}
        self._since: Counter[Clock] = Counter()  # fires since the clock's last one
        self._ticked_ns = self._longest_ns = 0

    def take(self, signal: StepSignal) -> bool:
        """Take a signal other than the clock's own; return True if it replaces the clock."""
        if signal.source not in self.allowed:
            return False
        below = self._below_clock(signal.source)
        if below and not self._outlives(signal):
            return False
        self.history.append(signal)
        self._counts[signal.source][signal.key] += 1
        chosen = (signal.source, signal.key) if below else self._choose(signal)
        changed = chosen is not None and chosen != self.clock
        if changed:
            self.clock = chosen
            self._since.clear()
            self._ticked_ns, self._longest_ns = signal.ns, self._usual_pause()
        return changed

    @property
    def ruled_out(self) -> frozenset[str]:
        """Sources whose signals change nothing; empty while a lower source may take over from a graph."""
        source = self.clock[0] if self.clock else "replay"
        return frozenset(
            other for other in RANK if source != "replay" and other != "replay" and self._below_clock(other)
        )

    def tick(self, signal: StepSignal) -> None:
        """Record that the clock itself fired."""
        self._counts[signal.source][signal.key] += 1
        self._since.clear()
        self._longest_ns = max(self._longest_ns, signal.ns - self._ticked_ns)
        self._ticked_ns = signal.ns

    def _below_clock(self, source: str) -> bool:
        """Return whether `source` ranks below the clock for good; a replay never does."""
        return self.clock is not None and source != "replay" and RANK[source] < RANK[self.clock[0]]

    def _outlives(self, signal: StepSignal) -> bool:
        """Return whether a lower source takes over, because the clock's graph is no longer replayed."""
        mine = signal.source, signal.key
        self._since[mine] += 1
        return self._is_dead(signal) and self._since[mine] >= PATIENCE[signal.source]

    def _choose(self, signal: StepSignal) -> Clock | None:
        source = signal.source
        if self.clock is None:
            return self._pick(source) if self._believed(signal) else None
        current, key = self.clock
        self._since[(source, signal.key)] += 1
        if RANK[source] > RANK[current]:
            return self._pick(source) if self._counts[source].total() >= min(2, PATIENCE[source]) else None
        if source == current == "optimizer":
            return self._rarer(signal, key)
        if source == "replay" and (current == "optimizer" or self._is_dead(signal)):
            return self._replayed(signal)
        return None

    def _believed(self, signal: StepSignal) -> bool:
        source = signal.source
        patience = PATIENCE[source]
        if source in ("loader", "forward") and not signal.grad:
            patience = INFERENCE_PATIENCE
        if self.allowed <= {"mark", source}:
            patience = min(patience, 2)
        higher = any(RANK[other] > RANK[source] and self._counts[other] for other in self.allowed)
        return not higher and max(self._counts[source].values()) >= patience

    def _pick(self, source: str) -> Clock:
        """Pick the least frequent optimizer or graph, the last in a cycle; of other sources, the busiest."""
        counts = self._counts[source]
        if source in ("optimizer", "replay"):
            least = min(counts.values())
            recent = (signal.key for signal in reversed(self.history) if signal.source == source)
            return source, next(key for key in recent if counts[key] == least)
        return source, counts.most_common(1)[0][0]

    def _rarer(self, signal: StepSignal, key: int) -> Clock | None:
        """Return another optimizer that fires once while the clock fires several times: the outer loop."""
        ours, theirs = self._counts["optimizer"][key], self._counts["optimizer"][signal.key]
        return ("optimizer", signal.key) if theirs >= 2 and 2 * theirs <= ours <= 16 * theirs else None

    def _usual_pause(self) -> int:
        """Return the clock's longest pause in ns, or the length of the history if it fired only once."""
        fired = [signal.ns for signal in self.history if (signal.source, signal.key) == self.clock]
        pauses = [after - before for before, after in pairwise(fired)]
        return max(pauses, default=self.history[-1].ns - self.history[0].ns)

    def _is_dead(self, signal: StepSignal) -> bool:
        pause = signal.ns - self._ticked_ns
        return self.clock is not None and self.clock[0] == "replay" and pause > DEAD * self._longest_ns > 0

    def _replayed(self, signal: StepSignal) -> Clock | None:
        replays = sum(n for (source, _), n in self._since.items() if source == "replay")
        if replays < STALE_REPLAYS:
            return None
        middle = (self._ticked_ns + signal.ns) // 2  # a graph not replayed since then is dead too
        living = Counter(past.key for past in self.history if past.source == "replay" and past.ns >= middle)
        least = min(living.values())
        return "replay", next(key for key, n in living.items() if n == least)
