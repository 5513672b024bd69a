"""Data loading of a planned step: how long the samples of a step take, and what limits them.

Workers read a sample and then make it. A host makes at most as many samples as its workers, its cores and
its storage allow. With workers, loading hides behind the step; without, the program loads by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fathom.planner.hardware import Hardware
from fathom.planner.quantity import ASSUMED, MEASURED, Quantity
from fathom.planner.training.results import Assumption, Interval, Loading
from fathom.units import GB, MIB, MS_PER_S

if TYPE_CHECKING:
    from fathom.planner.training.layout import Layouts

NOT_GIVEN = "not given"
WORKERS = Quantity(8.0, "", ASSUMED, "usual number of workers of a GPU; give --workers", 4.0, 16.0)
_NOTHING = Quantity(0.0, "", ASSUMED, NOT_GIVEN)
_FIELDS = {"sample bytes": "sample_bytes", "sample time": "sample_s", "workers": "workers"}
_NOTED = 0.01  # of the step: shorter waits need no note
_TIGHT = 0.8  # of the step: loading that takes longer has little slack


@dataclass(frozen=True)
class Loader:
    """The cost of a sample, in bytes from storage and seconds of a core, and the workers of a loading rank.

    One rank of each tensor-parallel group loads, and passes the batch on. No workers: the program loads
    between its steps. `samples` are those that a loading rank needs for a step.
    """

    sample_bytes: Quantity = _NOTHING
    sample_s: Quantity = _NOTHING
    workers: Quantity = WORKERS

    @property
    def has_workers(self) -> bool:
        """Return whether processes load while the program computes."""
        return self.workers.value >= 1

    def figures(self, hardware: Hardware) -> dict[str, Quantity]:
        """Return the figures that the time depends on, by name."""
        figures = {name: getattr(self, field) for name, field in _FIELDS.items()}
        if self.sample_bytes.value:
            figures[self._storage(hardware)] = hardware[self._storage(hardware)]
        return {k: q for k, q in (figures | {"cores": hardware["cores"]}).items() if q.source != NOT_GIVEN}

    def _storage(self, hardware: Hardware) -> str:
        """Return the figure of a host's storage: that of random reads for small samples, if measured."""
        is_small = self.sample_bytes.value < MIB and hardware["storage"].provenance == MEASURED
        return "storage.random" if is_small and "storage.random" in hardware.figures else "storage"

    def bounds(self, hardware: Hardware, samples: Any, at: Layouts) -> dict[str, npt.ArrayLike]:
        """Return the seconds that the samples of a step take by each limit of a host."""
        loaders = loaders_of(hardware, at)
        reading = self.sample_bytes.value / hardware[self._storage(hardware)].value
        # Without workers, all programs of the host read at the same time, between their steps.
        each = self.sample_s.value + reading * (1.0 if self.has_workers else loaders)
        return {
            "workers": samples * each / max(1.0, self.workers.value),
            "cores": loaders * samples * self.sample_s.value / hardware["cores"].value,
            "storage": loaders * samples * reading,
        }

    def seconds(self, hardware: Hardware, samples: Any, at: Layouts) -> Any:
        """Return the seconds that the samples of a step take, if nothing waits for the step."""
        return np.max(np.broadcast_arrays(*self.bounds(hardware, samples, at).values()), axis=0)

    def wait(self, hardware: Hardware, samples: Any, at: Layouts, rest: Any) -> Any:
        """Return the seconds that a step of `rest` seconds waits for its samples."""
        return self.waited(self.seconds(hardware, samples, at), rest)

    def waited(self, loading: Any, rest: Any) -> Any:
        """Return the part of `loading` that `rest` does not hide: all of it without workers."""
        return np.maximum(0.0, loading - rest) if self.has_workers else loading

    def at_ends(self, hardware: Hardware, samples: Any, at: Layouts) -> dict[str, tuple[float, float]]:
        """Return the seconds of loading at the low and the high end of each figure."""
        moved = {}
        for name, figure in self.figures(hardware).items():
            low, high = (self._changed(hardware, samples, at, name, end) for end in figure.interval)
            moved[name] = low, high
        return moved

    def _changed(self, hardware: Hardware, samples: Any, at: Layouts, name: str, value: float) -> float:
        if name in _FIELDS:
            changed = replace(getattr(self, _FIELDS[name]), value=value)
            return _first(replace(self, **{_FIELDS[name]: changed}).seconds(hardware, samples, at))
        there = hardware.having(**{name: replace(hardware[name], value=value)})
        return _first(self.seconds(there, samples, at))


def _first(values: Any) -> float:
    return float(np.ravel(values)[0])


def loaders_of(hardware: Hardware, at: Layouts) -> Any:
    """Return the loading ranks of a host."""
    return np.maximum(1.0, np.floor(np.minimum(hardware["host_gpus"].value, at.gpus) / at.tp))


def loading_of(loader: Loader, hardware: Hardware, samples: Any, at: Layouts, rest: float) -> Loading:
    """Return how the loader of one layout does beside a step that takes `rest` seconds without it."""
    bounds = {name: _first(value) for name, value in loader.bounds(hardware, samples, at).items()}
    limit = max(bounds, key=lambda name: bounds[name])
    return Loading(
        seconds=_interval(loader, hardware, samples, at),
        wait_s=float(loader.waited(bounds[limit], rest)),
        rest_s=rest,
        limit=limit if loader.has_workers else "the program itself",
        workers=loader.workers.value,
        needed=dict(_needed(loader, hardware, bounds, rest)),
    )


def _interval(loader: Loader, hardware: Hardware, samples: Any, at: Layouts) -> Interval:
    """Return the seconds with the interval that all figures give together, as if each erred by itself."""
    value = _first(loader.seconds(hardware, samples, at))
    if not value:
        return Interval(0.0, 0.0, 0.0)
    moved = [
        [math.log(end / value) for end in pair] for pair in loader.at_ends(hardware, samples, at).values()
    ]
    down = math.hypot(*(min(0.0, *pair) for pair in moved))
    up = math.hypot(*(max(0.0, *pair) for pair in moved))
    return Interval(value, value * math.exp(-down), value * math.exp(up))


def _needed(
    loader: Loader, hardware: Hardware, bounds: dict[str, float], rest: float
) -> Iterator[tuple[str, float]]:
    """Yield the figures that would hide loading behind the step, for those that are too small."""
    has = {"workers": loader.workers.value, "cores": hardware["cores"].value}
    has["storage"] = hardware["storage"].value if loader.sample_bytes.value else 0.0
    for name, seconds in bounds.items():
        if not loader.has_workers and name == "workers":
            yield name, float(math.ceil(seconds / rest))
        elif seconds > rest:
            needed = has[name] * seconds / rest
            yield name, needed if name == "storage" else float(math.ceil(needed))


def widened(step: Interval, loader: Loader, loading: Loading, least: float = 0.0) -> Interval:
    """Return the interval of a step with its wait of at least `least`, from that of the step without it."""
    pairs = (
        (step.value, loading.seconds.value),
        (step.low, loading.seconds.low),
        (step.high, loading.seconds.high),
    )
    return Interval(*(rest + max(least, _first(loader.waited(seconds, rest))) for rest, seconds in pairs))


def loading_assumptions(
    loader: Loader, hardware: Hardware, samples: Any, at: Layouts, rest: float
) -> list[Assumption]:
    """Return the figures of loading, and how far each moves the step."""
    figures, rows = loader.figures(hardware), []
    total = rest + _first(loader.wait(hardware, samples, at, rest))
    for name, pair in loader.at_ends(hardware, samples, at).items():
        low, high = (rest + float(loader.waited(seconds, rest)) for seconds in pair)
        q = figures[name]
        rows.append(Assumption(name, q.value, *q.interval, q.provenance, q.source, (high - low) / total))
    return rows


def loading_notes(loading: Loading) -> list[str]:
    """Return notes on the loading of a plan."""
    step = loading.rest_s + loading.wait_s
    if loading.needed and loading.wait_s > _NOTED * step:
        return [
            f"A step waits {_words(loading.wait_s)} for input "
            f"({100 * loading.wait_s / step:.0f} %): loading takes "
            f"{_words(loading.seconds.value)}, limited by {loading.limit}; {_remedy(loading)} would keep up."
        ]
    if loading.seconds.high > loading.rest_s or loading.seconds.value > _TIGHT * loading.rest_s:
        return [
            f"Loading takes {_words(loading.seconds.value)} ({_words(loading.seconds.low)} to "
            f"{_words(loading.seconds.high)}), "
            f"{100 * loading.seconds.value / loading.rest_s:.0f} % of the step, "
            f"limited by {loading.limit}: it may not keep up."
        ]
    return []


def _words(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{MS_PER_S * seconds:.3g} ms"


def _remedy(loading: Loading) -> str:
    """Return the figures that would hide loading, in words."""
    said = {
        "workers": "{:.0f} workers per loading rank",
        "cores": "{:.0f} cores per host",
        "storage": "storage of {:.3g} GB/s per host",
    }
    scaled = {name: value / GB if name == "storage" else value for name, value in loading.needed.items()}
    return " with ".join(said[name].format(value) for name, value in scaled.items())


def loading_derivation(loader: Loader, hardware: Hardware, samples: Any, at: Layouts) -> Iterator[str]:
    """Yield the derivation of the time of loading, line by line."""
    loaders, each = _first(loaders_of(hardware, at)), _first(samples)
    yield (
        f"loading: {each:g} samples of a step for each of {loaders:g} loading ranks of a host with "
        f"{hardware['cores'].value:g} cores"
    )
    for name, q in loader.figures(hardware).items():
        low, high = q.interval
        yield f"  {name}: {q.value:.4g} {q.unit} ({low:.4g} to {high:.4g}) [{q.provenance}: {q.source}]"
    for name, value in loader.bounds(hardware, samples, at).items():
        yield f"  by {name}: {MS_PER_S * _first(value):.4g} ms"
