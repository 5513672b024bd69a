"""Turn recorded requests into figures, and refuse runs whose figures would mislead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from fathom.errors import BadInputError
from fathom.load.results import Load, Refusal, Sent, Spread
from fathom.units import NS_PER_MS, NS_PER_S

BEYOND = 2  # requests beyond a percentile, at least
FAILED = 0.01  # share of requests
LATE, LATE_MS = 0.1, 10.0  # of the median latency, and at least: the 99th percentile of lateness
BUSY = 0.9  # of a core
ACHIEVED = 0.9  # of the rate asked for
FOLLOWS_MS, FOLLOWS = 10.0, 0.9  # a request sent so soon after another's end; the share that is
DISAGREE = 0.05  # between two counts of tokens
COLD = 3.0  # a first request this many times the median of the others
DRIFT, TREND = 1.5, 0.4  # last third of latencies over the first, and their rank correlation with time
FEWEST = 8  # requests below which there is no trend to see
USUALLY = 0.9  # share of requests with a property of the server's chunks
LIMITED = ("ttft", "tpot", "e2e")
_TERM = re.compile(r"\s*(\w+)\s*<\s*(\d+(?:\.\d+)?)\s*(ms|s)?\s*")


def judged(
    sent: Sequence[Sent],
    *,
    rate: float,
    pattern: str = "poisson",
    warmup: int = 0,
    slo: Slo | None = None,
    client_cpu: float | None = None,
    percentile: float = 0.9,
    tokenizer: bool = False,
    price_per_hour: float | None = None,
) -> Load:
    """Return the figures of a run, with every reason to refuse it.

    Latencies count from the scheduled time. `percentile` is the largest that must be known.
    """
    kept = list(sent)[warmup:]
    good = [request for request in kept if not request.failed]
    shifted = _usual(request.empty_start for request in good)
    each = [_latencies(request, shifted) for request in good]
    seconds, achieved = max(_span(kept) / NS_PER_S, 1e-9), _rate(kept)
    tokens = sum(request.tokens or 0 for request in good) / seconds
    tpot = _spread([latencies["tpot"] for latencies in each])
    meets = [slo.met(latencies) for latencies in each] if slo else []
    load = Load(
        pattern=pattern,
        rate=rate,
        achieved=achieved,
        requests=len(kept),
        warmup=min(warmup, len(sent)),
        failed=len(kept) - len(good),
        ttft=_spread([latencies["ttft"] for latencies in each]),
        tpot=tpot,
        itl=_spread(_intervals(good, shifted)) if _per_token(good, shifted) else None,
        e2e=_spread([latencies["e2e"] for latencies in each]),
        tokens_per_s=tokens,
        tokens_per_s_per_user=1000.0 / tpot.p50 if tpot and tpot.p50 else None,
        lag_ms=_spread(_lags(kept)),
        client_cpu=client_cpu,
        good=sum(meets) / len(kept) if slo and kept else None,
        good_per_s=sum(meets) * min(1 / seconds, achieved / len(kept)) if slo and kept else None,
        per_million=price_per_hour / 3600 / tokens * 1e6 if price_per_hour and tokens else None,
    )
    load.refusals = list(_refusals(kept, good, load, percentile, tokenizer))
    load.notes = list(_notes(good, shifted, load))
    return load


def client_ttft_ms(sent: Sequence[Sent]) -> float | None:
    """Return the mean time to first token of all answered requests, from the send, as a server counts it."""
    good = [request for request in sent if not request.failed]
    shifted = _usual(request.empty_start for request in good)
    spread = _spread([_latencies(replace(request, scheduled_ns=None), shifted)["ttft"] for request in good])
    return spread.mean if spread else None


def _latencies(request: Sent, shifted: bool) -> dict[str, float | None]:
    """Return the latencies of one request in ms, from the time at which it was due."""
    due = request.scheduled_ns or request.start_ns
    first = request.first_ns
    if first is not None and shifted and request.intervals_ms:
        first += round(request.intervals_ms[0] * NS_PER_MS)
    more = (request.tokens or 0) - 1
    per_token = (request.end_ns - first) / more / NS_PER_MS if first is not None and more > 0 else None
    ttft = None if first is None else (first - due) / NS_PER_MS
    return {"ttft": ttft, "tpot": per_token, "e2e": (request.end_ns - due) / NS_PER_MS}


def _intervals(sent: Sequence[Sent], shifted: bool) -> list[float | None]:
    return [ms for request in sent for ms in request.intervals_ms[int(shifted) :]]


def _per_token(sent: Sequence[Sent], shifted: bool) -> bool:
    """Return whether each chunk carries one token, so that times between chunks are those of tokens."""
    counted = [(len(s.intervals_ms) + 1 - int(shifted), s.tokens) for s in sent if s.tokens]
    return bool(counted) and _usual(abs(chunks - tokens) <= DISAGREE * tokens for chunks, tokens in counted)


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = np.array([value for value in values if value is not None], dtype=float)
    if not len(known):
        return None
    p50, p90, p99 = (float(q) for q in np.quantile(known, (0.5, 0.9, 0.99)))
    tails = (value if _enough(len(known), q) else None for value, q in ((p90, 0.9), (p99, 0.99)))
    return Spread(len(known), float(known.mean()), p50, *tails)


def _enough(n: int, percentile: float) -> bool:
    return n * (1 - percentile) >= BEYOND - 1e-9


def _span(sent: Sequence[Sent]) -> int:
    return max(s.end_ns for s in sent) - min(s.start_ns for s in sent) if sent else 0


def _rate(sent: Sequence[Sent]) -> float:
    """Return requests per second between the first and the last that were sent."""
    span = sent[-1].start_ns - sent[0].start_ns if len(sent) > 1 else 0
    return (len(sent) - 1) / (span / NS_PER_S) if span else 0.0


def _lags(sent: Sequence[Sent]) -> list[float | None]:
    return [(s.start_ns - s.scheduled_ns) / NS_PER_MS for s in sent if s.scheduled_ns is not None]


def _usual(flags: Iterator[bool] | Sequence[bool]) -> bool:
    known = list(flags)
    return bool(known) and sum(known) >= USUALLY * len(known)


def _refusals(
    sent: Sequence[Sent], good: Sequence[Sent], load: Load, percentile: float, tokenizer: bool
) -> Iterator[Refusal]:
    if load.failed > FAILED * max(len(sent), 1):
        yield Refusal("failures", f"{load.failed} of {len(sent)} requests failed")
    if not _enough(len(good), percentile):
        needed = int(np.ceil(BEYOND / (1 - percentile) - 1e-9))
        name = f"{100 * percentile:g}th percentile"
        yield Refusal("too-few", f"{len(good)} requests are too few for the {name}; send {needed} or more")
    yield from _of_the_client(sent, load)
    yield from _of_tokens(good, tokenizer)
    yield from _of_time(good)


def _of_the_client(sent: Sequence[Sent], load: Load) -> Iterator[Refusal]:
    """Yield the client's own effects on the latencies."""
    lags = [lag for lag in _lags(sent) if lag is not None]
    usual = load.e2e.p50 if load.e2e else 0.0
    late = float(np.quantile(lags, 0.99)) if lags else 0.0
    if late > max(LATE * usual, LATE_MS):
        why = f"the client sent 1 % of the requests {late:.0f} ms or more after they were due"
        yield Refusal("client-late", f"{why}: give it more cores, or another machine")
    if load.client_cpu is not None and load.client_cpu > BUSY:
        share = f"{100 * load.client_cpu:.0f} % of a core"
        yield Refusal("client-busy", f"a process of the generator used {share}, so it delays what it times")
    if _is_closed(sent):
        why = "requests were sent when others ended, so a slow server slowed the load down"
        yield Refusal("closed-loop", f"{why}: latencies hold for this concurrency, not for a rate")
    elif load.rate and load.achieved < ACHIEVED * load.rate and len(sent) >= FEWEST and not lags:
        yield Refusal("rate-missed", f"{load.achieved:.3g} of {load.rate:.3g} requests/s were sent")


def _is_closed(sent: Sequence[Sent]) -> bool:
    """Return whether nearly every request was sent just after another one ended."""
    ends = np.sort([s.end_ns for s in sent])
    if len(ends) < FEWEST or any(s.scheduled_ns is not None for s in sent):
        return False
    starts = np.array([s.start_ns for s in sent if s.start_ns > ends[0]])
    if not len(starts):
        return False
    before = ends[np.searchsorted(ends, starts, side="right") - 1]
    return float(np.mean(starts - before < FOLLOWS_MS * NS_PER_MS)) >= FOLLOWS


def _of_tokens(good: Sequence[Sent], tokenizer: bool) -> Iterator[Refusal]:
    """Yield reasons to distrust the number of tokens."""
    if good and not _usual(s.tokens is not None for s in good):
        why = "the server does not report how many tokens it generated, and chunks are not tokens"
        yield Refusal("tokens-unknown", why)
    both = [(s.tokens, s.client_tokens) for s in good if s.tokens and s.client_tokens is not None]
    server, client = (sum(side) for side in zip(*both, strict=True)) if both else (0, 0)
    if tokenizer and both and abs(client - server) > DISAGREE * server:
        why = f"the client's tokenizer counts {client:,} tokens, the server {server:,}"
        yield Refusal("tokenizers-disagree", f"{why}: give --tokenizer the server's")


def _of_time(good: Sequence[Sent]) -> Iterator[Refusal]:
    """Yield signs that the run was not at one level of load: a cold start, or a growing queue."""
    ms = np.array([(s.end_ns - (s.scheduled_ns or s.start_ns)) / NS_PER_MS for s in good])
    if len(ms) < FEWEST:
        return
    usual = float(np.median(ms[1:]))
    if ms[0] > COLD * usual:
        why = f"the first request took {ms[0]:.0f} ms, the median of the others {usual:.0f} ms"
        yield Refusal("warm-up", f"{why}: leave it out with --warmup")
    third = len(ms) // 3
    early, late = float(np.median(ms[:third])), float(np.median(ms[-third:]))
    ranks = np.argsort(np.argsort(ms))
    trend = float(np.corrcoef(ranks, np.arange(len(ms)))[0, 1])
    if late > DRIFT * early and trend > TREND:
        why = f"latency grew from {early:.0f} to {late:.0f} ms during the run"
        yield Refusal("no-steady-state", f"{why}: the server does not keep up with this rate")


def _notes(good: Sequence[Sent], shifted: bool, load: Load) -> Iterator[str]:
    if shifted:
        yield "the first chunk of an answer carries no token, so TTFT is of the second, unlike aiperf's"
    if good and load.itl is None:
        yield "chunks do not carry one token each, so there is no inter-token latency; TPOT counts tokens"


@dataclass(frozen=True)
class Slo:
    """Upper limits in milliseconds, which one request must all meet."""

    limits: Mapping[str, float]

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Parse `ttft<500,tpot<50`. Raises BadInputError."""
        limits = {}
        for term in text.split(","):
            parsed = _TERM.fullmatch(term)
            if not parsed or parsed[1] not in LIMITED:
                raise BadInputError(f"--slo has {term!r}; write limits like ttft<500,tpot<50 (ms), e2e<2s.")
            limits[parsed[1]] = float(parsed[2]) * (1000.0 if parsed[3] == "s" else 1.0)
        return cls(limits)

    def met(self, latencies: Mapping[str, float | None]) -> bool:
        """Return whether the request meets every limit; one without the latency does not."""
        return all((ms := latencies.get(name)) is not None and ms < top for name, top in self.limits.items())
