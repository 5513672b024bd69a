"""Run proofs in parallel, in threads that share a queue and a gate, and report progress."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from fathom.referee import Gate, StoppedError
from fathom.timing import Clock, SystemClock
from fathom.units import NS_PER_S

LOOK_UP_S = 0.5  # timeout of a wait: with polars, signals resume waits, and Ctrl-C would not end them
Say = Callable[[str], None]
T = TypeVar("T")
R = TypeVar("R")
_Done = tuple[list[R], BaseException | None]


def side_by_side(things: Sequence[T], do: Callable[[T, Gate], R], jobs: int) -> Generator[R, None, None]:
    """Run `do` on each of `things`, `jobs` at a time, and yield the results as they arrive.

    Raises the first exception of `do`. Then, or once the generator closes, the gate closes and threads end.
    """
    todo, done = deque(things), SimpleQueue[_Done[R]]()
    with Gate() as gate:

        def work() -> None:
            while not gate.closed:
                try:
                    thing = todo.popleft()
                except IndexError:
                    return
                try:
                    done.put(([do(thing, gate)], None))
                except StoppedError:
                    return
                except BaseException as error:
                    done.put(([], error))

        threads = [threading.Thread(target=work, name=f"proof {n}") for n in range(min(jobs, len(todo)))]
        for thread in threads:
            thread.start()
        try:
            yield from _awaited(done, len(things))
        finally:
            gate.close()
            for thread in threads:
                thread.join()


def _awaited(done: SimpleQueue[_Done[R]], count: int) -> Iterator[R]:
    for _ in range(count):
        results, error = _next(done)
        if error is not None:
            raise error
        yield from results


def _next(done: SimpleQueue[_Done[R]]) -> _Done[R]:
    while True:
        with suppress(Empty):
            return done.get(timeout=LOOK_UP_S)


class Progress:
    """Counts proofs of several threads. Each start and each message of a proof prints one line with `say`."""

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
        """Return the remaining time as text, if the rest takes as long per proof as those that are done."""
        spent_s = (self._clock.now_ns() - self._began_ns) / NS_PER_S
        left_s = spent_s * (self._total - self.done) / self.done
        return f"{left_s:.0f} s" if left_s < 100 else f"{left_s / 60:.0f} min"
