"""Replicas behind a router, under open and closed arrivals, and the latencies that clients see."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fathom.errors import BadInputError
from fathom.planner.serving.simulator import Replica, Request

ROUTING = ("least-loaded", "round-robin")
MANY = 200  # replicas, among which the next one is as much work as an iteration
_STRIDE = 0.05  # seconds that a replica may be ahead of another that could send it a request


class TooLongError(BadInputError):
    """A load that takes too many iterations to simulate."""


@dataclass
class Cluster:
    """Replicas that serve whole requests, or, with `decoders`, prompts that `transfer` seconds hand over."""

    replicas: list[Replica]
    decoders: list[Replica] = field(default_factory=list)
    transfer: Callable[[Request], float] = lambda request: 0.0
    routing: str = "least-loaded"
    most: float = math.inf  # turns of `run`, each an iteration of a replica or a request's arrival
    _turn: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        if self.routing not in ROUTING:
            raise BadInputError(
                f"{self.routing!r} is not a routing policy; choose one of {', '.join(ROUTING)}."
            )

    def run(self, requests: Sequence[Request], concurrency: int | None = None) -> list[Request]:
        """Serve the requests as they arrive, or `concurrency` at a time; return them as they complete."""
        source = iter(requests)
        pending: list[tuple[float, int, int, Request]] = []
        ticket = itertools.count()
        first = itertools.islice(source, concurrency) if concurrency else source
        for request in first:
            heapq.heappush(pending, (request.arrival, next(ticket), 0, request))
        done: list[Request] = []
        everyone = self.replicas + self.decoders
        turns = 0
        while pending or self._next(everyone):
            turns += 1 + len(everyone) // MANY
            if turns > self.most:
                raise TooLongError(
                    f"This load takes more than {self.most:,} iterations to simulate; give fewer requests, "
                    "shorter prompts or fewer replicas."
                )
            busy = self._next(everyone)
            if pending and (busy is None or pending[0][0] <= busy.clock):
                at, _, stage, request = heapq.heappop(pending)
                self._route(self.decoders if stage else self.replicas).submit(request, at)
                continue
            assert busy is not None
            for request in busy.step(self._horizon(pending, busy, len(everyone))):
                if self.decoders and busy.prefills and request.output > 1:
                    at = busy.clock + self.transfer(request)
                    heapq.heappush(pending, (at, next(ticket), 1, request))
                    continue
                done.append(request)
                following = next(source, None) if concurrency else None
                if following is not None:
                    following.arrival = busy.clock
                    heapq.heappush(pending, (busy.clock, next(ticket), 0, following))
        return done

    def _next(self, everyone: list[Replica]) -> Replica | None:
        """Return the replica with work whose clock is the earliest."""
        if len(everyone) == 1:
            return everyone[0] if everyone[0].load else None
        return min((r for r in everyone if r.load), key=lambda r: r.clock, default=None)

    def _horizon(self, pending: list[tuple[float, int, int, Request]], busy: Replica, count: int) -> float:
        ahead = busy.clock + _STRIDE if count > 1 else math.inf
        return min(pending[0][0] if pending else math.inf, ahead)

    def _route(self, pool: list[Replica]) -> Replica:
        if self.routing == "round-robin":
            return pool[next(self._turn) % len(pool)]
        return min(pool, key=lambda r: (r.load, r.clock))
