"""Determine the kind of a step from what happened within it."""

from __future__ import annotations

from collections import Counter


class StepFacts:
    """Collects deliveries of loaders between two marks; `close` derives the kind of the step from them."""

    def __init__(self) -> None:
        self._steps = 0
        self._delivered: Counter[int] = Counter()  # loader: number of steps in which it delivered
        self._started: set[int] = set()
        self._batches: list[tuple[int, int, int | None, int | None]] = []
        self._restarted: set[int] = set()
        self.pending = False  # whether a loader did something unusual since the last mark
        self._usual: tuple[int, int | None, int | None] | None = None  # the only batch of the last step
        self._came_ns = 0  # when the same batch came for the open step
        self.alike = True  # whether a mark now would end a step like the last one
        self.steady = True  # whether it ends one like the last without any batch

    def batch(self, loader: int, ns: int, samples: int | None, tokens: int | None) -> None:
        """Note that `loader` delivered a batch to the program at `ns`."""
        if not (self.alike or self.pending) and self._usual == (loader, samples, tokens):
            self._came_ns, self.alike = ns, True
            return
        self._unfold()
        self._batches.append((loader, ns, samples, tokens))
        self.pending, self.alike = True, False

    def _unfold(self) -> None:
        """Treat the usual batch as any other, if it has come."""
        if self._usual is not None and self.alike:
            loader, samples, tokens = self._usual
            self._batches.append((loader, self._came_ns, samples, tokens))
            self.pending, self.alike = True, False

    def passed(self, steps: int) -> None:
        """Count steps like the last one."""
        self._steps += steps
        if self._usual is not None:
            self._delivered[self._usual[0]] += steps

    def epoch(self, loader: int) -> None:
        """Note that an iterator of `loader` was created; its first does not count as an epoch start."""
        if loader in self._started:
            self._unfold()
            self._restarted.add(loader)
            self.pending, self.alike = True, False
        self._started.add(loader)

    def close(self, kind: str, ns: int) -> tuple[str, int | None, int | None, list[int]]:
        """Return (kind, samples, tokens, start times of micro-steps in ns) of the step that ended at `ns`."""
        self._unfold()
        self._usual, self.steady = None, not self.pending
        closed = self._close(kind, ns)
        self.pending = bool(self._batches or self._restarted)
        self.alike = self.steady and not self.pending
        return closed

    def _close(self, kind: str, ns: int) -> tuple[str, int | None, int | None, list[int]]:
        self._steps += 1
        if not self._batches and not self._restarted:
            return kind, None, None, []
        batches, self._batches = self._batches, []
        if batches[-1:] and batches[-1][1] > ns:
            self._batches = [batch for batch in batches if batch[1] > ns]
            batches = [batch for batch in batches if batch[1] <= ns]
        if len(batches) == 1 and not self._restarted:
            loader, _, samples, tokens = batches[0]
            self._delivered[loader] += 1
            if 2 * self._delivered[loader] > self._steps:
                self._usual = None if self._batches else (loader, samples, tokens)
                return kind, samples, tokens, []
            self._delivered[loader] -= 1
        loaders = {loader for loader, *_ in batches}
        self._delivered.update(loaders)
        regular = {loader for loader in loaders if 2 * self._delivered[loader] > self._steps}
        ours = [batch for batch in batches if batch[0] in regular]
        if regular and loaders - regular:
            kind += "+evaluation"
        elif regular & self._restarted:
            kind += "+epoch start"
        self._restarted = set()
        first = [batch for batch in ours if batch[0] == ours[0][0]]
        openings = [ns for _, ns, _, _ in first] if len(first) > 1 else []
        return kind, _sum([b[2] for b in first]), _sum([b[3] for b in first]), openings


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
