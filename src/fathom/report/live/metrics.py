"""A running program as metrics for Prometheus, written by `prometheus_client`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec

from fathom.analysis.live import HOST, Live
from fathom.data import load
from fathom.units import MS_PER_S
from fathom.visible import visible_line

Subjects = dict[tuple[str, ...], Any]  # by label values


class MetricRow(msgspec.Struct, forbid_unknown_fields=True):
    """A row of metrics.yaml."""

    name: str
    field: str
    help: str
    kind: str = "gauge"  # or counter
    factor: float = 1.0

    def value(self, subject: Any) -> float | None:
        """Return the value of the field in the metric's unit; None if it is unknown."""
        value = getattr(subject, self.field)
        if isinstance(value, list):
            return float(bool(value))
        return None if value is None else float(value) * self.factor


@cache
def rows() -> dict[str, list[MetricRow]]:
    """Return the rows by what they describe: program, rank, gpu, host."""
    return msgspec.convert(load(__package__, "metrics"), dict[str, list[MetricRow]])


class LiveCollector:
    """A collector for a registry of `prometheus_client`; `newest` returns what is known, or None."""

    def __init__(self, newest: Callable[[], Live | None]) -> None:
        self._newest = newest

    def collect(self) -> Iterator[Any]:
        """Yield the families of metrics."""
        live = self._newest()
        if live is None:
            return
        hosts = [device for device in live.devices if device.device == HOST]
        gpus = [device for device in live.devices if device.device != HOST]
        named: Subjects = {(str(gpu.device), visible_line(gpu.name)): gpu for gpu in gpus}
        yield from _families("program", (), {(): live})
        yield from _families("rank", ("rank",), {(str(rank.rank),): rank for rank in live.ranks})
        yield from _families("gpu", ("gpu", "name"), named)
        yield from _families("host", (), dict.fromkeys([()] if hosts else [], *hosts[:1]))
        yield from _alerts(live)
        yield from _labelled(live)


def _families(of: str, labels: tuple[str, ...], subjects: Subjects) -> Iterator[Any]:
    """Yield a family for each row with at least one known value."""
    for row in rows()[of]:
        values = {key: row.value(subject) for key, subject in subjects.items()}
        yield from _family(
            row.name, row.help, labels, {k: v for k, v in values.items() if v is not None}, row.kind
        )


def _family(
    name: str, about: str, labels: tuple[str, ...], values: Subjects, kind: str = "gauge"
) -> Iterator[Any]:
    """Yield one family; nothing without values."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    if not values:
        return
    family = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(name, about, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    yield family


def _alerts(live: Live) -> Iterator[Any]:
    active = float(any(not alert.over for alert in live.alerts))
    yield from _family("fathom_program_running", "1 while the program runs.", (), {(): live.state != "ended"})
    yield from _family("fathom_alerts", "Alerts raised.", (), {(): len(live.alerts)}, "counter")
    about = "1 while steps are slower than the alert rule allows."
    yield from _family("fathom_alert_active", about, (), {(): active})


def _labelled(live: Live) -> Iterator[Any]:
    """Yield the wall time by entry, findings, counters, and facts about the recording."""
    entries: Subjects = {
        (str(rank.rank), entry): s for rank in live.ranks for entry, s in rank.entries_s.items()
    }
    about = "Wall time since the start, by entry."
    yield from _family("fathom_wall_seconds", about, ("rank", "entry"), entries)
    findings = live.insight.findings if live.insight else []
    gains: Subjects = {
        (f.id, visible_line(f.title)): f.gain_ms / MS_PER_S for f in findings if f.gain_ms is not None
    }
    about = "Predicted gain per step of a finding."
    yield from _family("fathom_finding_gain_seconds", about, ("id", "title"), gains)
    counters = live.insight.counters if live.insight else []
    measures: Subjects = {(visible_line(m.family), m.name, m.unit): m.value for m in counters}
    about = "Measure of the kernel family with the most time, from hardware counters."
    yield from _family("fathom_kernel_measure", about, ("kernel", "measure", "unit"), measures)
    facts = (visible_line(live.path), visible_line(" ".join(live.command)), visible_line(live.machine))
    yield from _family(
        "fathom_recording_info", "The recording.", ("path", "command", "machine"), {facts: 1.0}
    )
