"""A signal: a value from a recording with its unit, or the reason why it is unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import msgspec
import polars as pl

from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.errors import NotASoundingError


class Signal(msgspec.Struct, frozen=True):
    """`value` in `unit`; None if unknown, and `why` then gives the reason."""

    value: Any
    unit: str = ""
    why: str = ""


class Reader(msgspec.Struct, frozen=True):
    """The function that reads a signal from a recording, and its unit."""

    unit: str
    read: Callable[[Recorded], Any]


READERS: dict[str, Reader] = {}


def signal(name: str, unit: str = "") -> Callable[[Callable[[Recorded], Any]], Callable[[Recorded], Any]]:
    """Register the function that reads the signal `name`; it raises UnknownSignalError if it is unknown.

    Each signal is read only once, even if other signals use it.
    """

    def register(read: Callable[[Recorded], Any]) -> Callable[[Recorded], Any]:
        @wraps(read)
        def once(recorded: Recorded) -> Any:
            if name not in recorded.read:
                recorded.read[name] = read(recorded)
            return recorded.read[name]

        READERS[name] = Reader(unit, once)
        return once

    return register


def most_common(names: pl.Series) -> str | None:
    """Return the most frequent name, the first of several equally frequent; None without names."""
    return names.drop_nulls().mode().sort().first()  # type: ignore[return-value]


PLAIN: tuple[tuple[str, str, Callable[[Recorded], Any]], ...] = (  # signals that nothing computes
    ("device.gpu", "", lambda recorded: recorded.gpu),
    ("device.memory_bytes", "B", lambda recorded: recorded.gpu.get("memory_bytes")),
    ("device.multiprocessors", "", lambda recorded: recorded.gpu.get("multiprocessors")),
    ("step.device", "", lambda recorded: recorded.device.device),
    ("step.headline_ms", "ms", lambda recorded: recorded.step.basis_ms),  # to which gains and shares refer
    ("step.kind", "", lambda recorded: recorded.account.kind),
    ("step.ledger", "ms per step", lambda recorded: recorded.ledger),
    ("step.rank", "", lambda recorded: recorded.account.rank),
    (
        "step.world",
        "",
        lambda recorded: next((r.world for r in recorded.store.manifest.ranks if r.world), None),
    ),
    ("step.trials", "ms per step", lambda recorded: recorded.tried),  # measured gains by kind of trial
)
for _name, _unit, _read in PLAIN:
    signal(_name, _unit)(_read)


class Signals:
    """Signals by name, read on first use; `known` signals are given, as in tests."""

    def __init__(self, known: Mapping[str, Any] | None = None, recorded: Recorded | None = None) -> None:
        self._recorded = recorded
        self._signals: dict[str, Signal] = {
            name: value if isinstance(value, Signal) else Signal(value)
            for name, value in (known or {}).items()
        }

    def get(self, name: str) -> Signal:
        """Return the signal, whether it is known or not."""
        if name not in self._signals:
            self._signals[name] = self._read(name)
        return self._signals[name]

    def __getitem__(self, name: str) -> Any:
        """Return the value. Raises UnknownSignalError if it is unknown."""
        signal = self.get(name)
        if signal.value is None:
            raise UnknownSignalError(signal.why)
        return signal.value

    def number(self, name: str, default: float | None = None) -> float:
        """Return the value as a number; if unknown, `default`. Raises UnknownSignalError without one."""
        signal = self.get(name)
        return default if signal.value is None and default is not None else float(self[name])

    def _read(self, name: str) -> Signal:
        if self._recorded is None or name not in READERS:
            return Signal(None, "", f"{name} is not known")
        reader = READERS[name]
        try:
            value = reader.read(self._recorded)
        except UnknownSignalError as reason:
            return Signal(None, reader.unit, str(reason))
        except NotASoundingError:
            raise
        except Exception as error:
            return Signal(None, reader.unit, f"{name} cannot be read: {type(error).__name__}: {error}")
        return Signal(value, reader.unit, "" if value is not None else f"{name} was not recorded")
