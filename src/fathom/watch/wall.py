"""Goodput of a program that still runs: the entries of `fathom goodput`, added up step by step."""

from __future__ import annotations

import random
from collections import deque
from statistics import median

from fathom.analysis import ENTRIES, EVALUATION, STALL
from fathom.analysis.live import PROFILED
from fathom.watch.counted import Counted

KNOWN = 256  # steps, drawn from all so far, whose median is the usual one; and waits that are kept
EVERY = 16  # steps between two medians
CAUSES = ("compilation", "checkpoint")  # of waits that are entries themselves
UNDISTURBED = ("settle", "clean", "summary")

Wait = tuple[str, int, int]  # cause, start, end


class Wall:
    """Divides the wall time since `start_ns` as `fathom goodput` does, with the median of the steps so far.

    Waits must be added before the step in which they end.
    """

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.usual_ns: float | None = None
        self._entries = dict.fromkeys((*ENTRIES, PROFILED), 0.0)
        self._drawn: list[int] = []
        self._random = random.Random(0)
        self._waits: deque[Wait] = deque(maxlen=KNOWN)
        self._until = start_ns  # everything before is in the entries
        self._begun = False
        self._learned = 0

    def wait(self, cause: str, start: int, end: int) -> None:
        """Add a wait."""
        if cause in CAUSES:
            self._waits.append((cause, start, end))

    def begin(self, ns: int) -> None:
        """Note that the first step opens, or the next one after a gap."""
        known = self._take(self._until, ns)
        self._entries["unattributed" if self._begun else "start-up"] += max(ns - self._until - known, 0)
        self._until, self._begun = ns, True

    def step(self, end: int, phase: str, kind: str) -> int:
        """Add the step that ends now, and return its duration without compilation and checkpoints."""
        rest = max(end - self._until - self._take(self._until, end), 0)
        self._until = end
        if phase in UNDISTURBED and EVALUATION not in kind:
            self._learn(rest)
        self._divide(rest, phase, kind)
        return rest

    def counted(self, end: int, kinds: list[Counted]) -> None:
        """Add steps that were only counted, the last of which ends now."""
        self._until = end
        for kind in kinds:
            for cause in CAUSES:
                self._entries[cause] += kind.waits.get(cause, 0)
            if EVALUATION not in kind.kind and kind.bins:
                self._learn_all(kind)
        for kind in kinds:
            for steps, ns in kind.bins.values():
                self._divide(ns / steps, "summary", kind.kind, steps)

    def _take(self, start: int, end: int) -> int:
        """Add the waits within a stretch to their entries, and return their sum."""
        known, later = 0, deque[Wait](maxlen=KNOWN)
        for cause, began, ended in self._waits:
            part = max(min(end, ended) - max(start, began), 0)
            part = min(part, end - start - known)
            self._entries[cause] += part
            known += part
            if ended > end:
                later.append((cause, began, ended))
        self._waits = later
        return known

    def _learn(self, rest: int) -> None:
        self._learned += 1
        if len(self._drawn) < KNOWN:
            self._drawn.append(rest)
        elif (place := self._random.randrange(self._learned)) < KNOWN:
            self._drawn[place] = rest
        if self._learned % EVERY == 0 or self._learned < EVERY:
            self.usual_ns = median(self._drawn)

    def _learn_all(self, kind: Counted) -> None:
        """Replace as large a share of the drawn steps as the counted ones have of all."""
        self._learned += kind.steps
        lengths = [round(ns / steps) for steps, ns in kind.bins.values()]
        new = self._random.choices(lengths, [steps for steps, _ in kind.bins.values()], k=KNOWN)
        share = kind.steps / self._learned
        kept = [b if self._random.random() < share else a for a, b in zip(self._drawn, new, strict=False)]
        self._drawn = kept + new[len(kept) : self._learned]
        self.usual_ns = median(self._drawn)

    def _divide(self, rest: float, phase: str, kind: str, steps: int = 1) -> None:
        known = rest if self.usual_ns is None else self.usual_ns
        usual = 0 if kind == EVALUATION else known
        beyond = steps * max(rest - usual, 0)
        if EVALUATION in kind:
            entry = "evaluation"
        elif phase not in UNDISTURBED:
            entry = PROFILED
        elif rest > STALL * usual:
            entry = "stall"
        else:
            entry = "productive"
        self._entries[entry] += beyond
        self._entries["productive"] += steps * rest - beyond

    def entries(self, now_ns: int, delay_ns: int = 0) -> dict[str, float]:
        """Return nanoseconds by entry, which sum to the time since the start; the open step is included.

        An open step counts as productive up to the usual time, and so do the last `delay_ns`, of which steps
        may not be known yet.
        """
        entries = dict(self._entries)
        rest = max(now_ns - self._until, 0)
        if self.usual_ns is None:
            entries["unattributed" if self._begun else "start-up"] += rest
        else:
            entries["productive"] += min(rest, delay_ns + self.usual_ns)
            entries["stall"] += max(rest - delay_ns - self.usual_ns, 0)
        return {entry: ns for entry, ns in entries.items() if ns}
