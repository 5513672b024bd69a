"""Turn measurements into a ceiling: its value is the best measurement, its series contains all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from fathom.gauges.catalogue import BY_ID, TIME
from fathom.gauges.timer import Sample
from fathom.machine import Ceiling
from fathom.machine.model import Conditions, Setting

# Errors after which a process's CUDA context is unusable.
FATAL = ("illegal memory access", "unspecified launch failure", "misaligned address", "uncorrectable ECC")


class NotHereError(Exception):
    """This ceiling cannot be measured here; the message is the reason in one clause."""


def is_fatal(error: Exception) -> bool:
    """Return whether `error` left this process's CUDA context unusable."""
    return any(words in str(error) for words in FATAL)


@dataclass(frozen=True)
class Measurement:
    """Samples at one setting `at`; `work` is the amount per repetition (bytes, FLOPs …), 1 for a latency."""

    at: Mapping[str, object]
    sample: Sample
    work: float = 1.0
    conditions: Conditions = field(default_factory=Conditions)
    flags: tuple[str, ...] = ()
    by_host: bool = False  # the host's cores do the work, so that other load can only lengthen it

    @property
    def seconds(self) -> float:
        """Seconds per repetition: the median, or the 10th percentile for host work."""
        return self.sample.quick if self.by_host else self.sample.median

    @property
    def rate(self) -> float:
        return self.work / self.seconds


def best(name: str, results: Sequence[Measurement], known: Measurement | None = None) -> Ceiling:
    """Return the ceiling `name` with the value of `known`, by default the fastest of `results`.

    Its series has the rates (or times) of all `results`. Raises NotHereError if there are none.
    """
    if not results:
        raise NotHereError("every way to measure it failed here")
    unit = BY_ID[name].unit
    series = [point(result, _value(result, unit)) for result in results]
    return ceiling(name, known or max(results, key=lambda result: result.rate), series)


def point(result: Measurement, value: float) -> Setting:
    """Return a point of a ceiling's series."""
    return cast(Setting, {**result.at, "value": value})


def ceiling(name: str, result: Measurement, series: list[Setting]) -> Ceiling:
    """Return the ceiling `name` with the value, quartiles and conditions of `result`."""
    unit = BY_ID[name].unit
    short, long = result.sample.quartiles
    short = min(short, result.seconds)
    low, high = (short, long) if unit == TIME else (result.work / long, result.work / short)
    return Ceiling(
        id=name,
        value=_value(result, unit),
        unit=unit,
        low=low,
        high=high,
        samples=len(result.sample.seconds),
        at=cast(Setting, result.at),
        series=series,
        conditions=result.conditions,
        flags=[*result.flags, *result.sample.flags],
    )


def _value(result: Measurement, unit: str) -> float:
    return result.seconds if unit == TIME else result.rate
