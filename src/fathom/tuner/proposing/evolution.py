"""An evolutionary search: the best choices are combined and changed in small steps."""

from __future__ import annotations

import random

from fathom.tuner.proposing.space import Choice, Space

FIRST = 6  # choices before the first children, the default among them
PARENTS = 0.5  # share of the measured choices that may have children, the fastest ones
JUMP = 0.2  # probability that a change goes to any value, instead of a neighbour
ATTEMPTS = 200  # to make a choice that was not proposed before
SMALL = 4096  # choices of a space that can be listed


class Evolution:
    """Proposes choices of a space. The same seed and the same order of times give the same proposals."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space = space
        self._random = random.Random(seed)
        self._proposed: list[Choice] = []
        self._measured: list[tuple[float, int, Choice]] = []  # time, number, choice

    def ask(self) -> Choice | None:
        """Return the next choice, the default first; None if there is no other."""
        choice = self._next()
        if choice is not None:
            self._proposed.append(choice)
        return choice

    def tell(self, choice: Choice, time: float | None) -> None:
        """Keep the time of a choice; None if it computes something else or fails."""
        if time is not None:
            self._measured.append((time, len(self._measured), choice))
            self._measured.sort(key=lambda known: known[:2])

    def _next(self) -> Choice | None:
        if not self._proposed:
            return self.space.default()
        for _ in range(ATTEMPTS):
            grown = len(self._proposed) >= FIRST and len(self._measured) > 1
            choice = self._child() if grown else self.space.any_choice(self._random)
            if choice not in self._proposed:
                return choice
        return next((choice for choice in self._others() if choice not in self._proposed), None)

    def _child(self) -> Choice:
        """Return a mixture of two fast choices, with a change in one parameter."""
        fast = self._measured[: max(2, round(PARENTS * len(self._measured)))]
        (_, _, first), (_, _, second) = self._random.sample(fast, 2)
        child = {name: self._random.choice((first, second))[name] for name in first}
        parameter = self._random.choice(self.space.parameters)
        jump = self._random.random() < JUMP
        step = parameter.any_value if jump else lambda source: parameter.beside(child[parameter.name], source)
        return child | {parameter.name: step(self._random)}

    def _others(self) -> list[Choice]:
        """Return all choices of a small space in random order, for when most were proposed."""
        if self.space.size > SMALL:
            return []
        choices = list(self.space.all())
        self._random.shuffle(choices)
        return choices
