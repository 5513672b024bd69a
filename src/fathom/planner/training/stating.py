"""Figures of data loading and of checkpoints that a user states, as options or in a file."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fathom.errors import BadInputError, file_error, nearest
from fathom.planner.hardware import quantity
from fathom.planner.quantity import ASSUMED, Quantity, spread
from fathom.planner.training.loading import Loader
from fathom.planner.training.saving import Saver
from fathom.regular import read_regular
from fathom.units import MIB

GIVEN = "given by the user"
MOST = 1e15  # bytes and seconds of a sample, and cores of a host
_OTHER_CORES = 0.2  # spread of a sample's time on other cores, for a time that a user gives
_LARGEST = MIB  # bytes of a file


@dataclass(frozen=True)
class Stated:
    """The figures of loading and saving that a user states. Quantities are texts, like `8 ms`."""

    sample_bytes: str | None = None
    sample_time: str | None = None
    workers: int | None = None
    storage: str | None = None
    checkpoint: str | None = None
    checkpoint_every: int | None = None
    one_writer: bool | None = None
    mtbf: float | None = None

    def loader(self, base: Loader | None = None) -> Loader | None:
        """Return the loader, changed from `base`; None if nothing says what a sample takes."""
        if base is None and self.sample_bytes is None and self.sample_time is None:
            if self.workers is not None:
                raise BadInputError(
                    "Workers alone do not give the time of loading; add --sample-time, like '8 ms', or "
                    "--sample-bytes, like '110 kB'."
                )
            return None
        loader = base or Loader()
        if self.sample_bytes is not None:
            size = _parsed("--sample-bytes", self.sample_bytes, "B", "110 kB")
            loader = replace(loader, sample_bytes=Quantity(size, "B", ASSUMED, GIVEN))
        if self.sample_time is not None:
            taken = _parsed("--sample-time", self.sample_time, "s", "8 ms")
            loader = replace(loader, sample_s=spread(taken, _OTHER_CORES, "s", ASSUMED, GIVEN))
        if self.workers is not None:
            loader = replace(loader, workers=Quantity(self._count("workers", 0), "", ASSUMED, GIVEN))
        return loader

    def saver(self) -> Saver | None:
        """Return how checkpoints are written; None if none are asked for."""
        every = self.checkpoint_every
        if self.checkpoint is None and every is None and not self.one_writer:
            return None
        if every is not None:
            self._count("checkpoint_every", 1)
        return Saver(self.checkpoint or "async", every, bool(self.one_writer), self._hours())

    def check_used(self) -> None:
        """Raise BadInputError for a figure that nothing in the plan of a model uses."""
        saves, reads = self.saver() is not None, self.sample_bytes is not None
        if self.storage is not None and not (saves or reads):
            raise BadInputError(
                "Only reads and checkpoints use the storage; add --checkpoint, or --sample-bytes."
            )
        if self.mtbf is not None and not saves:
            raise BadInputError("Only checkpoints use the time between failures; add --checkpoint async.")

    def assumed(self) -> list[str]:
        """Return the figures of the host, as assumptions of a system."""
        if self.storage is None:
            return []
        _parsed("--storage", self.storage, "B/s", "2 GB/s")
        return [f"storage={self.storage}"]

    def _hours(self) -> float | None:
        if self.mtbf is not None and (not _is_number(self.mtbf) or not 0 < self.mtbf < math.inf):
            raise BadInputError(f"mtbf is {self.mtbf}; give hours between failures above 0.")
        return self.mtbf

    def _count(self, name: str, least: int) -> int:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 10**6:
            raise BadInputError(f"{name} is {value!r}; give an integer from {least} to 1,000,000.")
        return int(value)


KEYS = tuple(field.name for field in fields(Stated))


def stated(options: dict[str, Any], file: str | Path | None = None) -> Stated:
    """Return the figures of a file, replaced by those of `options` that are not None."""
    given = {name: value for name, value in options.items() if value is not None}
    return Stated(**(_read(Path(file)) | given if file is not None else given))


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        values = yaml.safe_load(read_regular(path, _LARGEST))
    except OSError as error:
        raise BadInputError(file_error(path, error)) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise BadInputError(f"{path} is not a YAML file of figures; write lines like `sample_time: 8 ms`.")
    for name in values:
        if name not in KEYS:
            raise BadInputError(f"{path} has an unknown figure {name!r}; {nearest(str(name), KEYS)}.")
    return values


def _parsed(name: str, text: Any, unit: str, example: str) -> float:
    """Return the value of a text like `8 ms`; raises BadInputError for another unit, and for 0."""
    parsed = quantity(str(text))
    if parsed.unit != unit or not 0 < parsed.value < MOST:
        raise BadInputError(f"{name} {text} is not a value in {unit}; write one like {example!r}.")
    return parsed.value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
