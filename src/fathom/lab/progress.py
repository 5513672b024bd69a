"""The progress of a run of many proofs, as one line."""

from __future__ import annotations

from collections.abc import Callable

from fathom.timing import Clock, SystemClock
from fathom.units import NS_PER_S

Say = Callable[[str], None]


class Progress:
    """Counts proofs, for several threads. Each change and each message of a proof is one line to `say`."""

    def __init__(self, total: int, say: Say, clock: Clock | None = None) -> None:
        self._total, self._say, self._clock = total, say, clock or SystemClock()
        self._began_ns = self._clock.now_ns()
        self._running, self.done = dict[str, None](), 0

    def begin(self, name: str) -> Say:
        """Start a proof; return a function that prints its messages."""
        self._running[name] = None
        self._tell(name, "starting")
        return lambda text: self._tell(name, text)

    def end(self, name: str) -> None:
        """End a proof."""
        self._running.pop(name, None)
        self.done += 1

    def _tell(self, name: str, text: str) -> None:
        left = self._total - self.done - len(self._running)
        counts = f"{self.done} done, {len(self._running)} running, {left} to come"
        about = "" if self.done == 0 else f", about {self._estimate()} more"
        self._say(f"{counts}{about} · {name}: {text}" if self._total > 1 else f"{name}: {text}")

    def _estimate(self) -> str:
        """The remaining time, if the rest take as long as those that are done."""
        spent_s = (self._clock.now_ns() - self._began_ns) / NS_PER_S
        left_s = spent_s * (self._total - self.done) / self.done
        return f"{left_s:.0f} s" if left_s < 100 else f"{left_s / 60:.0f} min"
