"""Loads: how requests arrive and how long they are; and a run of a load on a deployment."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fathom.errors import BadInputError
from fathom.planner.serving.cluster import Cluster, TooLongError
from fathom.planner.serving.constants import resolved
from fathom.planner.serving.deployment import Deployment
from fathom.planner.serving.iteration import Iteration
from fathom.planner.serving.limits import limited
from fathom.planner.serving.simulator import Replica, Request
from fathom.timing import ARRIVALS, next_arrival

KINDS = ("closed", *ARRIVALS, "at-once")
MOST_TURNS = 25_000  # of one simulation: a plan runs some 20 of them, and takes half a minute then
SLOWEST, FASTEST = 1e-6, 1e6  # requests per second
LEAST, MOST = 200, 3_000  # requests that are simulated if their number is not given
ROUNDS = 4  # times of a request over which they arrive then, and requests of each client
_STEADY = 2.0  # times of a request after which as many end as arrive
_KEEPS_UP = 0.8  # of the arriving tokens are made; the rest is the chance of random arrivals


@dataclass(frozen=True)
class Load:
    """Requests of `prompt` and `output` tokens, spread uniformly by `spread` (0.2: from 0.8 to 1.2 times).

    `closed` keeps `concurrency` requests in flight; with ARRIVALS, they arrive at `rate` a second.
    `trace` gives arrivals, prompts and outputs one by one instead. Without `requests`, as many are
    simulated as show the steady state.
    """

    prompt: int = 1024
    output: int = 1024
    arrival: str = "closed"
    concurrency: int = 16
    rate: float = 1.0
    requests: int | None = None
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
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise BadInputError(f"{name} is {getattr(self, name)}; it must be above 0.")
        if not SLOWEST <= self.rate <= FASTEST:
            raise BadInputError(
                f"--rate is {self.rate:g}; give a number from {SLOWEST:g} to {FASTEST:g} requests per second."
            )

    @property
    def is_open(self) -> bool:
        """Return whether requests arrive at a rate, however many are in flight."""
        return self.arrival in ARRIVALS and not self.trace

    @property
    def count(self) -> int:
        """Return the requests that are simulated, or, of an open load, the fewest."""
        clients = self.concurrency if self.arrival == "closed" else 0
        return self.requests or max(LEAST, clients, min(ROUNDS * clients, MOST))

    @property
    def longest(self) -> int:
        """Return the tokens of the longest prompt with its answer."""
        if self.trace:
            return max(prompt + output for _, prompt, output in self.trace)
        return sum(max(1, round(mean * (1 + self.spread))) for mean in (self.prompt, self.output))

    def drawn(self, seed: int = 0) -> list[Request]:
        """Return the requests, drawn with `seed`."""
        if self.trace:
            return [Request(*row) for row in sorted(self.trace)]
        random_ = random.Random(seed)
        arrivals = self._arrivals(random_)
        return [
            Request(next(arrivals), self._length(self.prompt, random_), self._length(self.output, random_))
            for _ in range(self.count)
        ]

    def _length(self, mean: int, random_: random.Random) -> int:
        if not self.spread:
            return mean
        return max(1, round(mean * random_.uniform(1 - self.spread, 1 + self.spread)))

    def _arrivals(self, random_: random.Random) -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            if self.is_open:
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
    requests: int
    tokens: int
    gpus: int
    peak_batch: int
    preempted: int
    arriving: float = 0.0  # output tokens per second that open arrivals ask for
    leaving: float | None = None  # those of the requests that end in the second half of open arrivals

    @property
    def tpot(self) -> np.ndarray:
        """Return the times per output token of the requests that have more than one; 0 if none has."""
        several = self.paces[self.paces > 0]
        return several if len(several) else np.zeros(1)

    @property
    def output_rate(self) -> float:
        """Return output tokens per second: of the steady state if it is seen, else over all requests."""
        if self.leaving is not None:
            return self.leaving
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def keeps_up(self) -> bool:
        """Return whether as many requests end as arrive; False if even the most show no steady state."""
        if self.leaving is None:
            return not self.arriving or self.requests < MOST
        return self.leaving >= _KEEPS_UP * self.arriving

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
    return deque(growing(fleet, load, values, seed), maxlen=1)[0]


def growing(fleet: Fleet, load: Load, values: Mapping[str, float], seed: int = 0) -> Iterator[Served]:
    """Yield the result of a load, and of more of its requests until they show the steady state.

    A fleet that starts empty answers the first requests faster than all others.
    """
    count, most = load.count, MOST if load.is_open and load.requests is None else 0
    while True:
        try:
            served = _served(fleet, replace(load, requests=count), values, seed)
        except TooLongError:
            if count == load.count:
                raise
            return
        yield served
        needed = math.ceil(ROUNDS * load.rate * served.end_to_end.mean())
        if count >= min(needed, most):
            return
        count = min(max(needed, 2 * count), most)


def _served(fleet: Fleet, load: Load, values: Mapping[str, float], seed: int) -> Served:
    done, everyone = _simulated(fleet, load, values, seed)
    constants = resolved(fleet.decode, values)
    done.sort(key=lambda r: r.arrival)
    paces = np.array([r.tpot if r.output > 1 else 0.0 for r in done])
    pace = float(paces.sum()) / max(int(np.count_nonzero(paces)), 1)
    overhead = constants["request"] + constants["polling"] * pace if load.served else 0.0
    scale = fleet.decode.dp
    arriving, leaving = _flow(done, scale) if load.is_open else (0.0, None)
    return Served(
        np.array([r.ttft + overhead for r in done]),
        paces,
        np.array([r.done - r.arrival + overhead for r in done]),
        max(r.done for r in done) - min(r.arrival for r in done),
        len(done) * scale,
        sum(r.output for r in done) * scale,
        fleet.gpus,
        max(r.peak for r in everyone),
        sum(r.preempted for r in everyone),
        arriving,
        leaving,
    )


def _flow(done: Sequence[Request], scale: int) -> tuple[float, float | None]:
    """Return the output tokens per second of requests, by arrival, that arrive and that end.

    The latter counts the second half of the arrivals. It is None if one request takes longer than that half.
    """
    first, last = done[0].arrival, done[-1].arrival
    if last <= first:
        return 0.0, None
    arriving = scale * sum(r.output for r in done[1:]) / (last - first)
    if last - first < _STEADY * float(np.mean([r.done - r.arrival for r in done])):
        return arriving, None
    middle = (first + last) / 2
    return arriving, scale * sum(r.output for r in done if middle < r.done <= last) / (last - middle)


def _simulated(
    fleet: Fleet, load: Load, values: Mapping[str, float], seed: int
) -> tuple[list[Request], list[Replica]]:
    share = fleet.decode.dp
    requests = (
        load.drawn(seed)[: max(1, load.count // share)] if not load.trace else load.drawn(seed)[::share]
    )
    if load.is_open:
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
