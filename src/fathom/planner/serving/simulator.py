"""Discrete-event simulation of continuous batching: requests, replicas with a KV cache, and pools."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from fathom.planner.serving.deployment import Deployment
from fathom.planner.serving.iteration import Batch


@dataclass
class Request:
    """A request: its arrival, prompt and output lengths, and when its tokens came, in seconds."""

    arrival: float
    prompt: int
    output: int
    first: float = math.nan
    done: float = math.nan
    ready: float = 0.0  # when this pool may begin with it
    filled: int = 0  # tokens of the prompt that are in the KV cache
    made: int = 0  # output tokens before a preemption
    since: int = 0  # iteration in which it began to decode
    reserved: float = 0.0

    @property
    def ttft(self) -> float:
        """Return the time to the first token."""
        return self.first - self.arrival

    @property
    def tpot(self) -> float:
        """Return the mean time per output token after the first."""
        return (self.done - self.first) / max(1, self.output - 1)


Cost = Callable[[Batch], float]


@dataclass
class Replica:
    """One server's scheduler. `prefills`, `decodes`: the phases that it runs, for disaggregation.

    Times advance by whole iterations; runs of equal decode iterations advance at once.
    """

    of: Deployment
    cost: Cost
    hit: float = 0.0  # share of a prompt found in the prefix cache
    prefills: bool = True
    decodes: bool = True
    clock: float = 0.0
    iteration: int = 0
    waiting: deque[Request] = field(default_factory=deque)
    filling: deque[Request] = field(default_factory=deque)
    running: list[tuple[int, int, Request]] = field(default_factory=list)
    context: float = 0.0
    used: float = 0.0
    busy: float = 0.0
    peak: int = 0
    preempted: int = 0
    _order: int = 0

    @property
    def load(self) -> int:
        """Return the requests that it has."""
        return len(self.waiting) + len(self.filling) + len(self.running)

    def submit(self, request: Request, at: float) -> None:
        """Queue a request."""
        request.ready = at
        if not self.load:
            self.clock = max(self.clock, at)
        self.waiting.append(request)

    def step(self, horizon: float = math.inf) -> list[Request]:
        """Advance by one iteration, or by equal ones up to `horizon`; return the requests that left."""
        self._admit()
        if self.filling:
            return self._mixed()
        if self.running:
            return self._decode(horizon)
        if self.waiting:
            self.clock = max(self.clock, self.waiting[0].ready)
            if not self._admit():
                self.waiting[0].reserved = 0.0
                raise RuntimeError("a request is larger than the KV cache")
        return []

    def _size(self, request: Request) -> float:
        tokens = request.prompt + (request.output if self.of.engine.reserves else request.made)
        blocks = math.ceil(tokens / self.of.engine.block)
        return self.of.cache_bytes(blocks * self.of.engine.block)

    def _admit(self) -> bool:
        """Move requests from the queue into the batch while slots and KV blocks last."""
        any_admitted = False
        while self.waiting and self.waiting[0].ready <= self.clock:
            request = self.waiting[0]
            size = self._size(request)
            slots = self.of.batch_limit - len(self.filling) - len(self.running)
            if slots <= 0 or self.used + size > self.of.cache_space:
                break
            self.waiting.popleft()
            request.reserved = size
            self.used += size
            any_admitted = True
            if self.prefills or request.made:
                request.filled = round(request.prompt * self.hit)
                self.filling.append(request)
            else:
                self._start(request, request.prompt)
        return any_admitted

    def _start(self, request: Request, context: int) -> None:
        request.since = self.iteration
        left = max(1, math.ceil((request.output - 1 - request.made) / self.of.gain))
        self._order += 1
        heapq.heappush(self.running, (self.iteration + left, self._order, request))
        self.context += context
        self.peak = max(self.peak, len(self.running))

    def _chunks(self) -> list[tuple[Request, int]]:
        """Return the prompts of this iteration and how many tokens of each."""
        budget = max(1, self.of.token_limit - len(self.running))
        chunks: list[tuple[Request, int]] = []
        for request in self.filling:
            left = request.prompt + request.made - request.filled
            if left > budget and (not self.of.engine.chunked) and chunks:
                break
            take = left if not self.of.engine.chunked else min(left, budget)
            if take <= 0:
                break
            chunks.append((request, take))
            budget -= take
        return chunks

    def _mixed(self) -> list[Request]:
        chunks = self._chunks()
        ended = [r for r, q in chunks if r.filled + q >= r.prompt + r.made]
        batch = Batch(
            len(self.running),
            self.context,
            sum(q for _, q in chunks),
            sum(q * (r.filled + q / 2) for r, q in chunks),
            len(ended),
        )
        self._pass(self.cost(batch), 1)
        for request, take in chunks:
            request.filled += take
        left = self._finished()
        for request in ended:  # the first of the queue
            self.filling.popleft()
            if math.isnan(request.first):
                request.first = self.clock
            if self.decodes and request.output > 1:
                self._start(request, request.prompt + request.made)
            else:
                self._leave(request)
                left.append(request)
        return left

    def _decode(self, horizon: float) -> list[Request]:
        count = len(self.running)
        steps = max(1, self.running[0][0] - self.iteration)
        if not self.of.engine.reserves:
            steps = min(steps, self._room(count))
        if horizon < math.inf:
            each = self.cost(Batch(count, self.context))
            steps = max(1, min(steps, math.ceil((horizon - self.clock) / each)))
        mean = self.context + count * self.of.gain * (steps - 1) / 2
        self._pass(steps * self.cost(Batch(count, mean)), steps)
        return self._finished()

    def _room(self, count: int) -> int:
        """Return how many iterations the KV cache has room for; preempt the youngest request if for none."""
        per_token = self.of.kv_bytes * count * self.of.gain
        room = int((self.of.cache_space - self.used) // per_token) if per_token else 10**9
        if room < 1 and count > 1:
            self._preempt()
            return 1
        return max(1, room)

    def _preempt(self) -> None:
        youngest = max(self.running, key=lambda entry: entry[1])
        self.running.remove(youngest)
        heapq.heapify(self.running)
        request = youngest[2]
        made = round((self.iteration - request.since) * self.of.gain)
        self.context -= request.prompt + request.made + made
        self._leave(request, made)
        request.made += made
        request.filled = 0
        self.preempted += 1
        self.waiting.appendleft(request)

    def _pass(self, seconds: float, steps: int) -> None:
        """Let `steps` iterations pass for the sequences that decode."""
        self.clock += seconds
        self.busy += seconds
        self.iteration += steps
        grown = len(self.running) * steps * self.of.gain
        self.context += grown
        if not self.of.engine.reserves:
            self.used += grown * self.of.kv_bytes

    def _finished(self) -> list[Request]:
        left = []
        while self.running and self.running[0][0] <= self.iteration:
            request = heapq.heappop(self.running)[2]
            made = round((self.iteration - request.since) * self.of.gain)
            self.context -= request.prompt + request.made + made
            self._leave(request, made)
            left.append(request)
        return left

    def _leave(self, request: Request, made: int = 0) -> None:
        grown = 0.0 if self.of.engine.reserves else made * self.of.kv_bytes
        self.used = max(0.0, self.used - request.reserved - grown)
        request.done = self.clock
