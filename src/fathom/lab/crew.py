"""Run proofs in parallel: threads that each take the next one, behind one gate."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from fathom.referee import Gate, StoppedError

LOOK_UP_S = 0.5  # polars has signals resume a wait, so that Ctrl-C would not end one without a timeout
T = TypeVar("T")
R = TypeVar("R")
_Done = tuple[list[R], BaseException | None]


def side_by_side(things: Sequence[T], do: Callable[[T, Gate], R], jobs: int) -> Generator[R, None, None]:
    """The results of `do` in the order in which they arrive, `jobs` at a time.

    Raises the first exception of `do`. Then, or when the generator is closed, the gate closes and all end.
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
