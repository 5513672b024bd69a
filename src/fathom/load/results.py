"""Result types of `fathom load`, which `--json` prints. Times are in milliseconds."""

from __future__ import annotations

import msgspec

from fathom.analysis import Abstained
from fathom.analysis.serving import ServingFinding

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


class Distribution(msgspec.Struct):
    """A histogram of the server over the run. A quantile lies between two bounds of its buckets."""

    n: int  # requests
    mean: float
    p50: tuple[float | None, float | None]  # between; null: beyond the last bound
    p90: tuple[float | None, float | None]


class State(msgspec.Struct):
    """The server's gauges at one time; null where it has none."""

    at_s: float  # since the first reading
    running: float | None  # requests
    waiting: float | None  # requests in the queue
    cache: float | None  # share of the KV cache in use


class Server(msgspec.Struct):
    """The server's own metrics of a run. Null where it has no metric of this kind."""

    engine: str  # vLLM or SGLang
    seconds: float  # between the first and the last reading
    states: list[State]  # while requests were under way
    hit_rate: float | None  # share of prompt tokens that the prefix cache held
    preemptions: int | None
    finished: int | None  # requests, those of others too
    ttft: Distribution | None  # from its own arrival
    queue: Distribution | None
    prefill: Distribution | None
    e2e: Distribution | None
    client_ttft_ms: float | None  # the client's mean of the same requests, from the send
    failed_readings: int = 0
    block: int | None = None  # tokens of a block of the KV cache
    tokens_per_request: float | None = None  # in the cache: the prompt and half of the answer, on average
    accepted: float | None = None  # share of drafted tokens (speculative decoding); null without drafts


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
    server: Server | None = None  # null without metrics; a note says why
    findings: list[ServingFinding] = []  # from the server's metrics
    abstained: list[Abstained] = []  # findings that its metrics leave open


class Point(msgspec.Struct):
    """One rate of a sweep."""

    load: Load
    on_frontier: bool  # no other valid point has more tokens/s and more tokens/s per user
    knee: bool


class Sweep(msgspec.Struct):
    """Several rates, and the knee of their frontier."""

    points: list[Point]
    knee: float | None  # requests per second; null with fewer than three valid points
