"""Loads: how requests arrive and how long they are; and a run of a load on a deployment."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from fathom.errors import BadInputError
from fathom.planner.serving.cluster import Cluster
from fathom.planner.serving.constants import resolved
from fathom.planner.serving.deployment import Deployment
from fathom.planner.serving.iteration import Iteration
from fathom.planner.serving.limits import limited
from fathom.planner.serving.simulator import Replica, Request
from fathom.timing import ARRIVALS, next_arrival

KINDS = ("closed", *ARRIVALS, "at-once")
MOST_TURNS = 25_000  # of one simulation: a plan runs some 20 of them, and takes half a minute then
SLOWEST, FASTEST = 1e-6, 1e6  # requests per second


@dataclass(frozen=True)
class Load:
    """Requests of `prompt` and `output` tokens, spread uniformly by `spread` (0.2: from 0.8 to 1.2 times).

    `closed` keeps `concurrency` requests in flight; with ARRIVALS, they arrive at `rate` a second.
    `trace` gives arrivals, prompts and outputs one by one instead.
    """

    prompt: int = 1024
    output: int = 1024
    arrival: str = "closed"
    concurrency: int = 16
    rate: float = 1.0
    requests: int = 200
    spread: float = 0.0
    hit: float = 0.0
    served: bool = True  # by a server; False: measured in the engine, without HTTP and its queues
    trace: tuple[tuple[float, int, int], ...] = field(default=(), repr=False)
    turns: float = MOST_TURNS  # of a simulation, which takes too long with more

    def __post_init__(self) -> None:
        if self.arrival not in KINDS:
            raise BadInputError(
                f"{self.arrival!r} is not an arrival process; choose one of {', '.join(KINDS)}."
            )
        for name in ("prompt", "output", "concurrency", "requests"):
            if getattr(self, name) <= 0:
                raise BadInputError(f"{name} is {getattr(self, name)}; it must be above 0.")
        if not SLOWEST <= self.rate <= FASTEST:
            raise BadInputError(
                f"--rate is {self.rate:g}; give a number from {SLOWEST:g} to {FASTEST:g} requests per second."
            )

    def drawn(self, seed: int = 0) -> list[Request]:
        """Return the requests, drawn with `seed`."""
        if self.trace:
            return [Request(*row) for row in sorted(self.trace)]
        random_ = random.Random(seed)
        arrivals = self._arrivals(random_)
        return [
            Request(next(arrivals), self._length(self.prompt, random_), self._length(self.output, random_))
            for _ in range(self.requests)
        ]

    def _length(self, mean: int, random_: random.Random) -> int:
        if not self.spread:
            return mean
        return max(1, round(mean * random_.uniform(1 - self.spread, 1 + self.spread)))

    def _arrivals(self, random_: random.Random) -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            if self.arrival in ARRIVALS:
                now += next_arrival(self.arrival, self.rate, random_)


@dataclass(frozen=True)
class Served:
    """Latencies that the clients of a load saw, in seconds, and how the replicas fared.

    `ttft`, `paces` and `end_to_end` have a value for each request in the order of arrival; a request of one
    output token has no time between tokens, and its pace is 0.
    """

    ttft: np.ndarray
    paces: np.ndarray
    end_to_end: np.ndarray
    seconds: float
    tokens: int
    gpus: int
    peak_batch: int
    preempted: int

    @property
    def tpot(self) -> np.ndarray:
        """Return the times per output token of the requests that have more than one; 0 if none has."""
        several = self.paces[self.paces > 0]
        return several if len(several) else np.zeros(1)

    @property
    def output_rate(self) -> float:
        """Return output tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def within(self, ttft: float = math.inf, tpot: float = math.inf) -> float:
        """Return the share of requests that meet both limits."""
        return float(((self.ttft <= ttft) & (self.paces <= tpot)).mean())


@dataclass(frozen=True)
class Fleet:
    """Replicas of a deployment. With `prefill`, that many replicas of it hand prompts over to `replicas`."""

    decode: Deployment
    replicas: int = 1
    prefill: Deployment | None = None
    prefill_replicas: int = 0
    routing: str = "least-loaded"

    @property
    def gpus(self) -> int:
        """Return all GPUs."""
        return self.decode.gpus * self.replicas + (
            self.prefill.gpus * self.prefill_replicas if self.prefill else 0
        )


def serve(fleet: Fleet, load: Load, values: Mapping[str, float], seed: int = 0) -> Served:
    """Simulate a load on a fleet, with the constants `values`.

    The attention ranks of a replica advance together, so one of them is simulated with its share of the load.
    """
    done, everyone = _simulated(fleet, load, values, seed)
    constants = resolved(fleet.decode, values)
    done.sort(key=lambda r: r.arrival)
    paces = np.array([r.tpot if r.output > 1 else 0.0 for r in done])
    pace = float(paces.sum()) / max(int(np.count_nonzero(paces)), 1)
    overhead = constants["request"] + constants["polling"] * pace if load.served else 0.0
    scale = fleet.decode.dp
    return Served(
        np.array([r.ttft + overhead for r in done]),
        paces,
        np.array([r.done - r.arrival + overhead for r in done]),
        max(r.done for r in done) - min(r.arrival for r in done),
        sum(r.output for r in done) * scale,
        fleet.gpus,
        max(r.peak for r in everyone),
        sum(r.preempted for r in everyone),
    )


def _simulated(
    fleet: Fleet, load: Load, values: Mapping[str, float], seed: int
) -> tuple[list[Request], list[Replica]]:
    share = fleet.decode.dp
    requests = (
        load.drawn(seed)[: max(1, load.requests // share)] if not load.trace else load.drawn(seed)[::share]
    )
    if load.arrival not in ("closed", "at-once") and not load.trace:
        for request in requests:
            request.arrival *= share
    replicas = [_replica(fleet.decode, load, values, not fleet.prefill) for _ in range(fleet.replicas)]
    front = (
        [_replica(fleet.prefill, load, values, True, False) for _ in range(fleet.prefill_replicas)]
        if fleet.prefill
        else []
    )
    cluster = Cluster(
        front or replicas, replicas if front else [], _transfer(fleet), fleet.routing, load.turns
    )
    _fit(replicas[0], requests)
    concurrency = (
        max(1, math.ceil(load.concurrency / share)) if load.arrival == "closed" and not load.trace else None
    )
    done = cluster.run(requests, concurrency)
    return done, front + replicas


def _replica(
    of: Deployment, load: Load, values: Mapping[str, float], prefills: bool, decodes: bool = True
) -> Replica:
    of = limited(of, load.prompt, load.output)
    return Replica(of, Iteration(of, resolved(of, values)).seconds, load.hit, prefills, decodes)


def _transfer(fleet: Fleet) -> Callable[[Request], float]:
    """Return how long a prompt's KV cache takes from a prefill GPU to a decode GPU."""
    if fleet.prefill is None:
        return lambda request: 0.0
    source, gpus = fleet.prefill, fleet.gpus
    domain = source.hardware.domain(gpus)
    return lambda request: domain.latency.value + source.cache_bytes(request.prompt) / (0.5 * domain.rate)


def _fit(replica: Replica, requests: list[Request]) -> None:
    """Raise BadInputError if the longest request alone is over the KV cache."""
    of, longest = replica.of, max(r.prompt + r.output for r in requests)
    if of.cache_bytes(longest) > of.cache_space:
        per = of.cache_bytes(longest) / longest
        raise BadInputError(
            f"A request of {longest:,} tokens needs {of.cache_bytes(longest) / 1024**3:.1f} GiB of "
            "KV cache on each "
            f"GPU, which has {of.cache_space / 1024**3:.1f} GiB; the longest that fits has "
            f"{int(of.cache_space / per):,} tokens."
        )
