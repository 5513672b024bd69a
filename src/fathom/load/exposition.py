"""Read the metrics of vLLM and SGLang from Prometheus' text format, as `/metrics` returns it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache

import msgspec

from fathom.data import load

_FIRST = ("tp_rank", "pp_rank")  # labels: every scheduler of a model may report the same requests
_PRIORITY = "priority"  # label: empty for all requests, beside one series for each priority


class Names(msgspec.Struct, frozen=True):
    """The names of an engine's metrics, by what they measure, newest first."""

    counts: dict[str, list[str]]
    shares: dict[str, list[str]]
    totals: dict[str, list[str]]
    histograms: dict[str, list[str]]
    labels: dict[str, list[str]] = {}


class Histogram(msgspec.Struct):
    """A cumulative histogram in seconds: its count, its sum, and the count up to each bound."""

    count: float = 0.0
    sum: float = 0.0
    buckets: dict[float, float] = {}


class Reading(msgspec.Struct):
    """The metrics at one time; what the server does not report is missing. `time_ns` is since the epoch."""

    time_ns: int
    engine: str
    gauges: dict[str, float] = {}  # running, waiting, cache, hit_rate, accept_rate, block
    totals: dict[str, float] = {}  # asked, hits, preemptions, finished, drafted, accepted ...
    histograms: dict[str, Histogram] = {}  # ttft, queue, prefill, e2e


class Sample(msgspec.Struct, frozen=True):
    """One line: a name without the engine's prefix, its labels, and a finite value."""

    name: str
    labels: dict[str, str]
    value: float


@cache
def names() -> dict[str, Names]:
    return {engine: msgspec.convert(row, Names) for engine, row in load(__package__, "metrics").items()}


def reading(text: str, time_ns: int) -> Reading | None:
    """Return the metrics in a text; None without those of vLLM or SGLang. Raises ValueError for bad text."""
    for engine, of in names().items():
        samples = list(_samples(text, engine))
        if samples:
            return _reading(samples, of, Reading(time_ns, engine))
    return None


def _samples(text: str, engine: str) -> Iterator[Sample]:
    from prometheus_client.parser import text_string_to_metric_families

    # Comments go too: without types, no family is refused for the names of its samples.
    lines = [line for line in text.splitlines() if line.startswith((f"{engine}:", f"{engine}_"))]
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            if math.isfinite(sample.value):
                yield Sample(sample.name[len(engine) + 1 :], sample.labels, float(sample.value))


def _reading(samples: list[Sample], of: Names, result: Reading) -> Reading:
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        if all(sample.labels.get(rank, "0") == "0" for rank in _FIRST):
            by_name.setdefault(sample.name, []).append(sample)
    for into, metrics, merged in (
        (result.gauges, of.counts, sum),
        (result.gauges, of.shares, max),
        (result.totals, of.totals, sum),
    ):
        for what, known in metrics.items():
            values = next((_values(by_name[name]) for name in known if name in by_name), [])
            if values:
                into[what] = float(merged(values))
    for what, known in of.labels.items():
        numbers = [number for name in known if (number := _labelled(by_name, name))]
        if numbers:
            result.gauges[what] = numbers[0]
    for what, known in of.histograms.items():
        for name in known:
            if what not in result.histograms and (read := _histogram(by_name, name)) is not None:
                result.histograms[what] = read
    return result


def _values(samples: Iterable[Sample]) -> list[float]:
    """Return the values of the series, without parts of which another series is the sum."""
    rows = list(samples)
    if any(row.labels.get(_PRIORITY) == "" for row in rows):
        rows = [row for row in rows if not row.labels.get(_PRIORITY)]
    return [row.value for row in rows]


def _labelled(by_name: dict[str, list[Sample]], name: str) -> float | None:
    """Return the number in a label, as `METRIC/LABEL`; None if there is none."""
    metric, _, label = name.partition("/")
    words = (sample.labels.get(label, "") for sample in by_name.get(metric, ()))
    return next((float(word) for word in words if word.isdecimal()), None)


def _histogram(by_name: dict[str, list[Sample]], name: str) -> Histogram | None:
    base, _, stage = name.partition("/")
    parts = {
        part: [s for s in by_name.get(f"{base}_{part}", ()) if not stage or s.labels.get("stage") == stage]
        for part in ("count", "sum", "bucket")
    }
    if not parts["count"] or not parts["sum"]:
        return None
    count, total = (sum(sample.value for sample in parts[part]) for part in ("count", "sum"))
    result = Histogram(count, total)
    for sample in parts["bucket"]:
        bound = float(sample.labels.get("le", "inf"))
        result.buckets[bound] = result.buckets.get(bound, 0.0) + sample.value
    return result
