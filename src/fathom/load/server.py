"""The server's own account of a load test, from its metrics, beside the client's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from fathom.load.exposition import Histogram, Reading
from fathom.load.judge import client_ttft_ms
from fathom.load.results import Distribution, Sent, Server, State
from fathom.load.scraping import Scraped
from fathom.units import MS_PER_S, NS_PER_S

UNREAD = "the server's metrics were not read"
DIFFER, DIFFER_MS = 0.2, 10.0  # of the larger one, and at least: two means of the TTFT that disagree
OTHERS, OTHERS_LEAST = 0.05, 2  # of the requests sent, and at least: others that the server answered


def server_account(scraped: Scraped, sent: Sequence[Sent]) -> tuple[Server | None, list[str]]:
    """Return the server's account of the run, and notes: why there is none, or where it disagrees.

    The histograms cover all requests that the server finished between the first and the last reading, with
    warm-up. Gauges are those between the first request that was sent and the last that was answered.
    """
    if not scraped.readings:
        return None, [f"{UNREAD}: {scraped.url}: {scraped.why}"]
    first, last = scraped.readings[0], scraped.readings[-1]
    if len(scraped.readings) < 2:
        return None, [f"the server's metrics could not be read again: {scraped.url}: {scraped.why}"]
    if _fell(scraped.readings):
        return None, ["the server's counters fell during the run: it restarted, so its metrics are left out"]
    totals = {name: last.totals[name] - first.totals.get(name, 0.0) for name in last.totals}
    spreads = {name: _between(first, last, name) for name in last.histograms}
    during = _during(scraped.readings[1:-1], sent)
    server = Server(
        engine={"vllm": "vLLM", "sglang": "SGLang"}[last.engine],
        seconds=(last.time_ns - first.time_ns) / NS_PER_S,
        states=list(_states(during, first.time_ns)),
        hit_rate=_hit_rate(totals, during),
        preemptions=_rounded(totals.get("preemptions")),
        finished=_rounded(totals.get("finished")),
        ttft=spreads.get("ttft"),
        queue=spreads.get("queue"),
        prefill=spreads.get("prefill"),
        e2e=spreads.get("e2e"),
        client_ttft_ms=client_ttft_ms(sent),
        failed_readings=scraped.failed,
        block=_rounded(last.gauges.get("block")),
        tokens_per_request=_length(totals),
        accepted=_accepted(totals, during),
    )
    return server, list(_notes(server, sent))


def _fell(readings: Sequence[Reading]) -> bool:
    """Return whether a counter became smaller, as after a restart."""
    return any(
        after.engine != before.engine
        or any(value < before.totals.get(name, 0.0) for name, value in after.totals.items())
        or any(
            h.count < before.histograms.get(name, Histogram()).count for name, h in after.histograms.items()
        )
        for before, after in pairwise(readings)
    )


def _between(first: Reading, last: Reading, name: str) -> Distribution | None:
    """Return a histogram's growth; None if nothing was observed. A series begins with its first value."""
    after, before = last.histograms[name], first.histograms.get(name, Histogram())
    count = after.count - before.count
    if count <= 0:
        return None
    grown = {bound: after.buckets[bound] - before.buckets.get(bound, 0.0) for bound in sorted(after.buckets)}
    quantiles = (_bounds(grown, count, share) for share in (0.5, 0.9))
    return Distribution(int(count), MS_PER_S * (after.sum - before.sum) / count, *quantiles)


def _bounds(grown: dict[float, float], count: float, share: float) -> tuple[float | None, float | None]:
    """Return the bounds in ms of the bucket with a quantile; None where it has none."""
    low = 0.0
    for bound, until in grown.items():
        if until >= share * count - 1e-9:
            return MS_PER_S * low, MS_PER_S * bound if np.isfinite(bound) else None
        low = bound
    return None, None


def _during(readings: Sequence[Reading], sent: Sequence[Sent]) -> list[Reading]:
    if not sent:
        return list(readings)
    low, high = min(s.start_ns for s in sent), max(s.end_ns for s in sent)
    inside = [reading for reading in readings if low <= reading.time_ns <= high]
    return inside or list(readings)  # another clock


def _states(readings: Sequence[Reading], zero_ns: int) -> Iterator[State]:
    for reading in readings:
        gauges = (reading.gauges.get(name) for name in ("running", "waiting", "cache"))
        yield State((reading.time_ns - zero_ns) / NS_PER_S, *gauges)


def _hit_rate(totals: dict[str, float], readings: Sequence[Reading]) -> float | None:
    """Return the share of prompt tokens that the prefix cache held, from counters, else from a gauge.

    Old releases of SGLang give the gauge in percent; a value above 1 is left out.
    """
    if totals.get("asked", 0.0) > 0 and "hits" in totals:
        return min(totals["hits"] / totals["asked"], 1.0)
    rates = [reading.gauges["hit_rate"] for reading in readings if "hit_rate" in reading.gauges]
    known = [rate for rate in rates if 0 <= rate <= 1]
    return float(np.mean(known)) if known and len(known) == len(rates) else None


def _accepted(totals: dict[str, float], readings: Sequence[Reading]) -> float | None:
    """Return the accepted share of drafted tokens, by counters, else by a gauge (SGLang's is 0 if unused)."""
    if totals.get("drafted", 0.0) > 0 and "accepted" in totals:
        return min(totals["accepted"] / totals["drafted"], 1.0)
    rates = [rate for reading in readings if 0 < (rate := reading.gauges.get("accept_rate", 0.0)) <= 1]
    return float(np.mean(rates)) if rates else None


def _length(totals: dict[str, float]) -> float | None:
    """Return the mean tokens that a request has in the cache: its prompt, and half of its answer."""
    known = all(name in totals for name in ("prompt", "generated"))
    finished = totals.get("finished", 0.0)
    return (totals["prompt"] + totals["generated"] / 2) / finished if known and finished > 0 else None


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


def _notes(server: Server, sent: Sequence[Sent]) -> Iterator[str]:
    """Yield disagreements of the server with the client."""
    done = server.finished if server.finished is not None else server.e2e.n if server.e2e else None
    if done is not None and done - len(sent) > max(OTHERS_LEAST, OTHERS * len(sent)):
        why = "others used it, and its figures include theirs"
        yield f"the server finished {done:,} requests during the run, the client sent {len(sent):,}: {why}"
    if server.failed_readings:
        yield f"{server.failed_readings:,} readings of the server's metrics failed"
    mine, its = server.client_ttft_ms, server.ttft.mean if server.ttft else None
    if mine is None or its is None or abs(mine - its) <= max(DIFFER_MS, DIFFER * max(mine, its)):
        return
    both = f"mean TTFT: {mine:,.0f} ms at the client, {its:,.0f} ms by the server"
    if mine > its:
        yield f"{both}; {mine - its:,.0f} ms pass outside of its count: network, HTTP server, tokenising"
    else:
        yield f"{both}, which is more than the client saw: it counts other requests, or other tokens"
