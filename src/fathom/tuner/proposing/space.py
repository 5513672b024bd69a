"""A space of parameters: names, allowed values, and the values that the file has."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Choice = dict[str, Any]


@dataclass(frozen=True)
class Parameter:
    """A parameter with its allowed values in order; `default` is the value in the file."""

    name: str
    values: tuple[Any, ...]
    default: Any

    def any_value(self, source: random.Random) -> Any:
        """Return any of its values."""
        return source.choice(self.values)

    def beside(self, value: Any, source: random.Random) -> Any:
        """Return a neighbour of the value, because close values often behave alike."""
        if value not in self.values or len(self.values) == 1:
            return self.any_value(source)
        place = self.values.index(value)
        near = [at for at in (place - 1, place + 1) if 0 <= at < len(self.values)]
        return self.values[source.choice(near)]


@dataclass(frozen=True)
class Space:
    """The parameters of one file."""

    parameters: tuple[Parameter, ...] = ()

    @property
    def size(self) -> int:
        """The number of choices, without the default if it is not among the allowed values."""
        return math.prod(len(parameter.values) for parameter in self.parameters)

    def default(self) -> Choice:
        """Return the values in the file."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    def any_choice(self, source: random.Random) -> Choice:
        return {parameter.name: parameter.any_value(source) for parameter in self.parameters}

    def all(self) -> Iterator[Choice]:
        """Yield every choice."""
        names = [parameter.name for parameter in self.parameters]
        for values in itertools.product(*(parameter.values for parameter in self.parameters)):
            yield dict(zip(names, values, strict=True))
