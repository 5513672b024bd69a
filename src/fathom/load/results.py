"""Result types of `fathom load`, which `--json` prints. Times are in milliseconds."""

from __future__ import annotations

import msgspec

DEFINITIONS = {
    "ttft": "time to first token: from the scheduled send to the first chunk that carries a token",
    "tpot": "time per output token: (last chunk - first token) / (tokens - 1), per request; "
    "aiperf calls it inter-token latency, vLLM's benchmark TPOT",
    "itl": "inter-token latency: between two consecutive chunks, over all requests; "
    "aiperf calls it inter-chunk latency",
    "e2e": "end to end: from the scheduled send to the last chunk",
}


class Sent(msgspec.Struct):
    """One request, as the generator recorded it. Times in ns of the client's clock."""

    scheduled_ns: int | None  # null without a schedule
    start_ns: int
    end_ns: int
    first_ns: int | None  # the first chunk
    intervals_ms: list[float] = []  # between consecutive chunks
    tokens: int | None = None  # generated, counted by the server
    prompt: int | None = None  # counted by the server
    client_tokens: int | None = None  # generated, counted by the client's tokenizer
    failed: bool = False

    @property
    def empty_start(self) -> bool:
        """Whether there are more chunks than tokens, so the first one (a role) carries none."""
        return self.tokens is not None and len(self.intervals_ms) + 1 > self.tokens > 0


class Spread(msgspec.Struct):
    """Percentiles over requests; null where fewer than two lie beyond."""

    n: int
    mean: float
    p50: float
    p90: float | None
    p99: float | None


class Refusal(msgspec.Struct):
    """A reason why the figures of this run must not be used."""

    code: str
    why: str


class Load(msgspec.Struct):
    """One run. With a refusal its figures describe the test, not the server."""

    pattern: str
    rate: float  # requests per second asked for
    achieved: float  # requests per second sent
    requests: int  # without warm-up
    warmup: int  # requests left out at the start
    failed: int
    ttft: Spread | None
    tpot: Spread | None
    itl: Spread | None
    e2e: Spread | None
    tokens_per_s: float
    tokens_per_s_per_user: float | None  # 1 / median TPOT
    lag_ms: Spread | None  # how late requests were sent
    client_cpu: float | None  # share of a core that the busiest process of the generator used
    good: float | None  # share of requests that meet the SLO
    good_per_s: float | None  # goodput: requests per second that meet it
    per_million: float | None = None  # price of a million generated tokens
    refusals: list[Refusal] = []
    notes: list[str] = []


class Point(msgspec.Struct):
    """One rate of a sweep."""

    load: Load
    on_frontier: bool  # no other valid point has more tokens/s and more tokens/s per user
    knee: bool


class Sweep(msgspec.Struct):
    """Several rates, and the knee of their frontier."""

    points: list[Point]
    knee: float | None  # requests per second; null with fewer than three valid points
