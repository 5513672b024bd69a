"""A running program as lines of a log: one per interval, and one for each event."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from fathom.analysis.live import HOST, Live
from fathom.report import units
from fathom.report.live import words
from fathom.report.screen import joined
from fathom.units import NS_PER_S
from fathom.visible import visible_line


def live_line(live: Live) -> str:
    """Return the state on one line."""
    return visible_line(f"{_clock(live)} {joined(*_parts(live))}")


def _clock(live: Live) -> str:
    return datetime.fromtimestamp(live.now_ns / NS_PER_S).strftime("%H:%M:%S")


def _parts(live: Live) -> Iterator[str]:
    rank = live.lead
    if live.state == "ended":
        yield words.ending(live)
        return
    if rank is None:
        yield "no step yet"
        return
    if rank.stalled:
        yield f"no step for {words.elapsed(rank.since_mark_s)}"
    about = words.PROFILED if rank.profiled else words.against_baseline(rank)
    yield f"step {rank.step:,} {units.duration(rank.step_ms)}{f' ({about})' if about else ''}"
    yield from words.rates(rank)
    yield from _shares(live)
    watts = [
        device.power_w for device in live.devices if device.device != HOST and device.power_w is not None
    ]
    if watts:
        yield f"{sum(watts):,.0f} W"


def _shares(live: Live) -> Iterator[str]:
    rank = live.lead
    assert rank is not None
    if live.mfu is not None:
        yield f"MFU {units.percent(live.mfu)}"
    yield f"goodput {units.percent(rank.goodput)}"
    if rank.input_share is not None:
        yield f"input wait {units.percent(rank.input_share)}"
    if live.communication_share:
        yield f"communication {units.percent(live.communication_share)}"


def live_events(before: Live | None, live: Live) -> Iterator[str]:
    """Yield a line for what happened between two views: alerts, their causes, and new findings."""
    old = {alert.at_ns: alert for alert in before.alerts} if before else {}
    for alert in live.alerts:
        known = old.get(alert.at_ns)
        if known is None or known.over != alert.over:
            yield _event(live, f"alert: {words.alert_title(alert)}")
        if alert.state in ("explained", "unexplained") and (known is None or known.state != alert.state):
            yield from (_event(live, f"cause: {text}") for text in words.alert_lines(live, alert))
    yield from _news(before, live)


def _news(before: Live | None, live: Live) -> Iterator[str]:
    earlier = before.insight if before else None
    if live.insight is None or (earlier and earlier.at_ns == live.insight.at_ns):
        return
    known = {finding.title for finding in earlier.findings} if earlier else set()
    if live.insight.headline and (earlier is None or earlier.headline != live.insight.headline):
        yield _event(live, f"verdict: {live.insight.headline}")
    for finding in live.insight.findings:
        if finding.title not in known:
            yield _event(live, f"finding: {joined(finding.title, words.saving(finding))}")


def _event(live: Live, text: str) -> str:
    return visible_line(f"{_clock(live)} {text}")
