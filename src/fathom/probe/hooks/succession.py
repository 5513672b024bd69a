"""Keys of optimizers. A new optimizer of the same parameters takes over the key of its predecessor."""

from __future__ import annotations

import sys
import weakref
from itertools import count
from typing import Any

DEEPEST = 40  # frames around a step that are searched for another optimizer


class Known:
    """An optimizer that has made a step."""

    __slots__ = ("first", "inner", "key", "ref")

    def __init__(self, optimizer: Any) -> None:
        self.ref, self.key = weakref.ref(optimizer), 0
        self.first, self.inner = _first(optimizer), _is_inner(optimizer)


class Succession:
    """Gives optimizers their keys.

    Programs create optimizers anew, every epoch or even every step: those are one source of steps. Two
    optimizers of the same parameters that take turns are not, nor is one that another calls in its step.
    """

    def __init__(self) -> None:
        self._keys = count(1)
        self._known: dict[int, Known] = {}
        self._latest: dict[int | None, Known] = {}  # by their first parameter

    def key_of(self, optimizer: Any) -> int:
        """Return the key of an optimizer that makes a step.

        Raises TypeError for an optimizer that forbids weak references.
        """
        mine = self._known.get(id(optimizer))
        if mine is None or mine.ref() is not optimizer:
            mine = self._known[id(optimizer)] = Known(optimizer)
        if not mine.inner:
            self._settle(mine)
        mine.key = mine.key or next(self._keys)
        return mine.key

    def _settle(self, mine: Known) -> None:
        """Let a new optimizer succeed the latest of its parameters; an older one takes the key back."""
        latest = self._latest.get(mine.first)
        if latest is None or latest is mine:
            latest = self._only_dead(mine)
        if latest and (not mine.key or latest.first != mine.first):
            mine.key = latest.key
        elif latest and latest.key == mine.key:  # it goes on beside its successor
            latest.key = next(self._keys)
        self._latest[mine.first] = mine

    def _only_dead(self, mine: Known) -> Known | None:
        """Return an optimizer of other parameters if all others are dead and had its key: the last fold's."""
        others = [other for other in self._latest.values() if other is not mine]
        alone = len({other.key for other in others}) == 1 and all(other.ref() is None for other in others)
        return others[0] if alone else None


def _first(optimizer: Any) -> int | None:
    """Return the identity of the first parameter; None if there is none."""
    try:
        return id(optimizer.param_groups[0]["params"][0])
    except (AttributeError, LookupError, TypeError):
        return None


def _is_inner(optimizer: Any) -> bool:
    """Return whether another optimizer calls this one's step in its own."""
    from torch.optim import Optimizer

    frame = sys._getframe(1)
    for _ in range(DEEPEST):
        caller = frame.f_locals.get("self")
        if isinstance(caller, Optimizer) and caller is not optimizer:
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False
