"""Result types for serving, parts of the contract in `analysis/results.py`. Times are in milliseconds."""

from __future__ import annotations

import msgspec


class Percentiles(msgspec.Struct):
    """Percentiles over requests; null where fewer than two requests lie beyond."""

    n: int
    mean: float
    p50: float
    p90: float | None
    p99: float | None
    max: float


class RequestEntry(msgspec.Struct):
    """One entry of the requests' ledger."""

    entry: str
    mean_ms: float  # over requests; the entries sum to the mean time of a request
    share: float  # of all requests' time
    p50_ms: float
    p90_ms: float | None
    max_ms: float
    first_mean_ms: float  # until the first token was written


class SlowRequest(msgspec.Struct):
    """One of the slowest requests, with its ledger."""

    request: int
    ms: float
    first_ms: float | None  # until its first token was written
    prompt: int | None
    generated: int | None
    entries: dict[str, float]  # ms by entry, largest first, which sum to `ms`
    first_entries: dict[str, float] = {}  # likewise, until the first token was written
    behind: int = 0  # other requests whose prompts were read while it was in the queue
    behind_tokens: int = 0  # of these prompts
    at_ceiling_ms: float | None = None  # of its prefill, if the device's ledger has the iterations' ceiling


class ServingFinding(msgspec.Struct):
    """A cause that lengthens requests, with the time that its remedy saves per request on average."""

    id: str
    title: str
    gain_ms: float  # at the recorded speed
    low_ms: float  # at the speeds of parts of this run; negative: a run may be slower without the cause
    high_ms: float
    share: float  # of the mean request
    claims: dict[str, float]  # ms per request, by entry of the ledger
    evidence: dict[str, float]
    action: str
    mechanism: str
    per: str = "request"  # the unit of the gain; findings on steps have none
    at_most: bool = False  # nothing could be replayed: the gain is all the time that the cause may have taken


class IterationKind(msgspec.Struct):
    """Iterations of one kind."""

    kind: str
    n: int
    share: float  # of the time of all iterations
    p50_ms: float
    requests: float  # mean per iteration
    tokens: float  # mean per iteration
    at_ceiling: float | None = None  # share of its time that the device's work needs at the ceilings


class DecodeFloor(msgspec.Struct):
    """The least time of a decode: each iteration reads the weights once, at the measured bandwidth.

    The cache of keys and values is not counted.
    """

    weights_bytes: int
    bandwidth: float  # bytes per second, measured
    ceiling: str  # its id
    ms: float
    share: float  # of the median decode iteration
    tokens_per_s: float  # at the recorded number of requests per decode


class Serving(msgspec.Struct):
    """The requests that an engine answered while it was recorded.

    Time to first token is from arrival until the first chunk with a token was written; for answers that are
    not streamed, until the token was generated. Time per output token is the time from there to the last
    byte over the tokens after the first. End to end is from arrival to the last byte.
    """

    requests: int
    failed: int  # HTTP status of 400 or more
    seconds: float  # from the first arrival to the last byte
    tokens_per_s: float | None  # generated; null here and below: imported spans do not say
    requests_per_s: float
    busy: float | None  # share of the time in which an iteration ran; of spans: a request was in one
    ttft_ms: Percentiles | None
    tpot_ms: Percentiles | None
    e2e_ms: Percentiles
    ledger: list[RequestEntry]
    iterations: list[IterationKind]
    slowest: list[SlowRequest]
    prompt_tokens: int | None
    cached_tokens: int | None  # of prompts, found in the prefix cache
    generated_tokens: int | None
    recomputed_tokens: int | None  # read again because a preemption had discarded them
    preemptions: int | None
    waiting_max: int | None  # requests in the queue
    kv_peak: float | None  # largest share of the KV cache in use
    drafted_tokens: int = 0  # that decodes verified: speculative decoding
    accepted_tokens: int = 0  # of these
    findings: list[ServingFinding] = []  # largest gain first
    decode_floor: DecodeFloor | None = None  # null if weights or bandwidth are not known
    tokens_per_joule: float | None = None  # generated; null without an energy counter
    per_million: float | None = None  # price of a million generated tokens; null without a price
