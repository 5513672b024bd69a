"""Adapter files: knobs that a program declares, as arguments of its command or variables of its environment.

[[knob]]
id = "batch"
argument = "--batch"            # or environment = "BATCH"
values = [16, 32, 64]
work = [2, 4, 8]                # of a step, relative to the program as it is; for batch sizes
changes = "results"             # nothing, rounding, precision, randomness or results
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from fathom.errors import BadInputError
from fathom.settings import settings_in
from fathom.tuner.knobs import Knob, Value, catalogue
from fathom.tuner.knobs.catalogue import Changes

Scalar = str | int | float


class Declared(msgspec.Struct, forbid_unknown_fields=True):
    """A row of an adapter file."""

    id: str
    values: list[Scalar]
    argument: str = ""
    environment: str = ""
    title: str = ""
    work: list[float] = []
    changes: Changes = "results"
    suggested_by: tuple[str, ...] = ()
    saves: float = 0.05
    patience_s: float = 0.0
    carries: str = "batch"

    def knob(self) -> Knob:
        """Return the knob of this row. Raises ValueError if it contradicts itself."""
        if bool(self.argument) == bool(self.environment):
            raise ValueError(f"knob '{self.id}' needs either an argument or an environment variable")
        if not self.values or (self.work and len(self.work) != len(self.values)):
            raise ValueError(f"knob '{self.id}' needs values, and as many numbers under work if any")
        work = self.work or [1.0] * len(self.values)
        where = f"{self.argument or self.environment} of the program"
        return Knob(
            id=self.id,
            title=self.title or self.id,
            values=tuple(map(self._value, self.values, work)),
            suggested_by=self.suggested_by,
            saves=self.saves,
            changes=self.changes,
            patience_s=self.patience_s,
            carries=self.carries,
            code=where,
        )

    def _value(self, value: Scalar, work: float) -> Value:
        text = str(value)
        place: dict[str, Any] = {"arguments": {self.argument: text}} if self.argument else {}
        place |= {"environment": {self.environment: text}} if self.environment else {}
        return Value(name=f"{self.argument or self.environment} {text}", work=work, **place)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    knob: list[Declared]


def knobs_in(path: Path) -> tuple[Knob, ...]:
    """Return the knobs that an adapter file declares. Raises BadInputError."""
    content = settings_in(path)
    if content is None:
        raise BadInputError(f"{path} does not exist; give an adapter file, or leave --adapter out.")
    try:
        knobs = tuple(row.knob() for row in msgspec.convert(content, _File).knob)
    except (msgspec.ValidationError, ValueError) as error:
        raise BadInputError(f"{path} is not an adapter file: {error}.") from None
    ids = [knob.id for knob in (*catalogue(), *knobs)]
    if repeated := next((name for name in ids if ids.count(name) > 1), None):
        raise BadInputError(f"{path} has the knob '{repeated}', which exists already; give it another id.")
    return knobs
