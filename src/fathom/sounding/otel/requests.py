"""A request as spans describe it: its ends, its stages, its tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fathom.units import NS_PER_S

TOO_LONG_S = 1e6  # no request takes as long
MOST_TOKENS = 2**40
# Names of stages, which are entries of the requests' ledger.
GATEWAY, TOKENISE, QUEUE, SCHEDULER = "gateway", "tokenise", "queue", "scheduler"
PREFILL, DECODE, WAITING = "prefill phase", "decode phase", "waiting for others"
PREEMPTED, RECOMPUTE, UNKNOWN = "preempted", "recompute", "not known"
# Names of attributes, newest first: OpenTelemetry's conventions, then those of the engines.
PROMPT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens")
GENERATED = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens")
CACHED = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens")
LATENCY = "gen_ai.latency."

Facts = Mapping[str, str | float]


@dataclass
class Answered:
    """One request. Times in ns since the epoch, tokens as counts; None: the spans do not say."""

    start_ns: int
    end_ns: int
    token_ns: int | None = None  # its first token
    prompt: int | None = None
    generated: int | None = None
    cached: int | None = None
    stages: list[tuple[str, int, int]] = field(default_factory=list)  # name, start, end
    impossible: bool = False  # a duration was negative or not finite, or stages are longer than the request

    @property
    def submitted_ns(self) -> int:
        """When it entered the queue, or its arrival if its queue is not known."""
        return next((start for name, start, _ in self.stages if name == QUEUE), self.start_ns)


def count(facts: Facts, names: tuple[str, ...]) -> int | None:
    """Return a number of tokens by the first of its names that the facts have."""
    value = next((facts[name] for name in names if name in facts), None)
    if isinstance(value, str) or value is None or not 0 <= value <= MOST_TOKENS:
        return None
    return int(value)


def duration(facts: Facts, name: str) -> int | None:
    """Return a latency in ns from an attribute in seconds; None if it is not there. Raises ValueError."""
    value = facts.get(LATENCY + name)
    if value is None:
        return None
    if isinstance(value, str) or not math.isfinite(value) or not 0 <= value < TOO_LONG_S:
        raise ValueError(f"{name} is {value!r}")
    return round(value * NS_PER_S)


def set_tokens(request: Answered, facts: Facts) -> None:
    request.prompt, request.generated = count(facts, PROMPT), count(facts, GENERATED)
    request.cached = count(facts, CACHED)
