"""Collect the requests and the iterations of this process's engine as rows, and mark a step per iteration."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextvars import ContextVar
from itertools import count
from typing import Any

from fathom.pristine import time
from fathom.probe.faults import guarded
from fathom.probe.session import Session

PART = "watching the serving engine"
PREFILL, DECODE, RECOMPUTE = 0, 1, 2  # phases of a request's turn in an iteration
WAITING = "waiting"  # kind of the step in which the engine has no request
SHORTEST_NS = 100_000  # of a span that is worth a row
BLOCK, PREFIXES = 32, 16_384  # tokens of a block, and blocks that are remembered
ROWS = 65_536  # that wait for a flush, at most
SAVED_NS, LONGEST_NS = 100_000_000, 500_000_000  # between writes of handed requests: with none open, and ever
now = time.time_ns

REQUEST = (
    *("request", "arrival", "submitted", "token", "sent", "end"),
    *("prompt", "cached", "repeated", "generated", "chunks", "status", "key"),
)
HANDED = ("request", "key", "arrival", "handed", "sent", "end", "chunks", "status")
ITERATION = (
    *("start", "prepared", "computed", "sampled", "end"),
    *("kind", "waiting", "kv_used", "kv_total", "kv_block", "weights", "turns"),
)


class Request:
    """One request, while it is served. Times are None until they are known."""

    def __init__(self, number: int, arrival: int) -> None:
        self.number, self.arrival = number, arrival
        self.submitted: int | None = None  # to the engine
        self.token: int | None = None  # the first one was generated
        self.sent: int | None = None  # the first chunk after it had been written
        self.end: int | None = None  # the last chunk had been written
        self.prompt = self.cached = self.repeated = self.generated = self.chunks = 0
        self.status: int | None = None
        self.served = False  # through HTTP
        self.started = False  # in a scheduler that says so
        self.drained = False  # the client was slow to read
        self.transport: Any = None
        self.key: Any = None
        self.handed: dict[Any, int] = {}  # to an engine in another process: when, by the engine's key

    def row(self) -> tuple[Any, ...]:
        """Return the values in the order of REQUEST. HTTP in another process knows the request by key."""
        times = (self.arrival, self.submitted, self.token, self.sent, self.end)
        tokens = (self.prompt, self.cached, self.repeated, self.generated)
        key = None if self.served else str(self.key)
        return (self.number, *times, *tokens, self.chunks, self.status, key)

    def handed_rows(self) -> list[tuple[Any, ...]]:
        """Return the values in the order of HANDED, for each request of the engine that answers this one."""
        after = (self.sent, self.end, self.chunks, self.status)
        return [(self.number, str(key), self.arrival, at, *after) for key, at in self.handed.items()]


class Batch:
    """One iteration: its times, the state of the cache, and a turn for each request in it."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.prepared: int | None = None
        self.computed: int | None = None
        self.sampled: int | None = None
        self.waiting: int | None = None
        self.kv_used: int | None = None
        self.kv_total: int | None = None
        self.kv_block: int | None = None  # tokens
        self.turns: list[tuple[Request, int, int, int]] = []  # request, phase, tokens, tokens generated

    @property
    def kind(self) -> str:
        """Return prefill, decode or mixed."""
        decodes = {phase == DECODE for _, phase, _, _ in self.turns}
        return "mixed" if len(decodes) > 1 else "decode" if True in decodes else "prefill"

    def row(self, end: int, weights: int | None) -> tuple[Any, ...]:
        """Return the values in the order of ITERATION."""
        turns = [(request.number, *rest) for request, *rest in self.turns]
        cache = (self.waiting, self.kv_used, self.kv_total, self.kv_block, weights)
        return (self.start, self.prepared, self.computed, self.sampled, end, self.kind, *cache, turns)


class Prefixes:
    """Remembers how prompts began, in blocks, by hashes; no token is kept."""

    def __init__(self) -> None:
        self._known: dict[int, None] = {}

    def seen(self, prompt: Sequence[int]) -> int:
        """Return how many tokens of the prompt, from its start, an earlier prompt began with."""
        seen, chain = 0, 0
        for at in range(0, len(prompt) - BLOCK + 1, BLOCK):
            chain = hash((chain, *prompt[at : at + BLOCK]))
            if chain in self._known:
                seen = at + BLOCK
            self._known[chain] = None
        while len(self._known) > PREFIXES:
            del self._known[next(iter(self._known))]
        return seen


class Serving:
    """Follows the requests of this process. Any thread may call."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.here: ContextVar[Request | None] = ContextVar("fathom_request", default=None)
        self.read: ContextVar[int] = ContextVar("fathom_read", default=0)  # when the socket received it
        self.transport: ContextVar[Any] = ContextVar("fathom_transport", default=None)
        self.batch: Batch | None = None
        self.weights: int | None = None  # bytes of the model
        self._numbers = count()
        self._of: dict[Any, Request] = {}
        self._idle = False
        self._prefixes = Prefixes()
        self._requests: deque[tuple[Any, ...]] = deque(maxlen=ROWS)
        self._spans: deque[tuple[Any, ...]] = deque(maxlen=ROWS)
        self._iterations: deque[tuple[Any, ...]] = deque(maxlen=ROWS)
        self._handed: deque[tuple[Any, ...]] = deque(maxlen=ROWS)
        self._open, self._saved = 0, 0  # handed requests that have not left; when some were written
        session.on_flush.append(self.report)

    # requests

    def arrived(self, arrival: int) -> Request:
        """Return a new request."""
        return Request(next(self._numbers), arrival)

    def submitted(self, key: Any, prompt: Sequence[int], arrival: int | None = None) -> Request:
        """Note that the request of this context enters the engine, which calls it `key`.

        Without one in this context, the request is new, and arrived at `arrival` or now.
        """
        request = self.here.get()
        if request is None or request.submitted is not None:
            request = self.arrived(arrival or now())
        request.repeated = self._prefixes.seen(prompt)
        request.submitted, request.prompt, request.key = now(), len(prompt), key
        self._of[key] = request
        return request

    def handed(self, key: Any) -> Request | None:
        """Note that the request of this context goes to an engine in another process, which calls it `key`.

        Return the request; None outside of HTTP.
        """
        request = self.here.get()
        if request is None or request.end is not None:
            return None
        self._open += not request.handed
        request.handed[key] = now()
        self._of[key] = request
        return request

    def of(self, key: Any) -> Request | None:
        """Return the request that the engine calls `key`."""
        return self._of.get(key)

    def finished(self, request: Request) -> None:
        """Note that the engine is done with the request."""
        if not request.served:
            self.left(request)

    def left(self, request: Request) -> None:
        """Record the request: its answer is complete, or its client is gone."""
        self._of.pop(request.key, None)
        request.end = request.end or now()
        if request.submitted is not None:
            self._requests.append(request.row())
        elif request.handed:
            self._returned(request)

    def _returned(self, request: Request) -> None:
        """Record a handed request, and write what waits: no step of this process does."""
        for key in request.handed:
            self._of.pop(key, None)
        self._handed += request.handed_rows()
        self._open -= 1
        if now() - self._saved >= (LONGEST_NS if self._open else SAVED_NS):
            self._saved = now()
            self.session.save()

    def span(
        self, request: Request | None, what: str, start: int, end: int, least: int = SHORTEST_NS
    ) -> None:
        """Record that something took from `start` to `end` for the request, unless it was short."""
        if request is not None and end - start >= least:
            self._spans.append((request.number, what, start, end))

    # iterations

    def begin(self, start: int) -> Batch:
        """Return the batch of an iteration that begins."""
        if self._idle:
            self._idle = False
            self.session.signal("engine", 0, grad=False, kind=WAITING)
        self.batch = Batch(start)
        return self.batch

    def idle(self) -> None:
        """Note that the engine has nothing to do, and write what waits: a signal may end a server."""
        self._idle = True
        if self._requests:
            self.session.save()

    def generated(self) -> None:
        """Count the tokens of the batch, before they are delivered."""
        for request, _, _, generated in self.batch.turns if self.batch else ():
            if generated:
                request.generated += generated
                request.token = request.token or now()

    def iterated(self) -> None:
        """Record the batch, and mark the end of a step."""
        batch, self.batch = self.batch, None
        if batch is None or not batch.turns:
            return
        end = now()
        self._iterations.append(batch.row(end, self.weights))
        tokens = sum(tokens for _, _, tokens, _ in batch.turns)
        self.session.signal("engine", 0, grad=False, kind=batch.kind, samples=len(batch.turns), tokens=tokens)

    @guarded(PART)
    def report(self) -> None:
        """Hand the rows to the recording."""
        for kind, columns, rows in (
            ("requests", REQUEST, self._requests),
            ("handed", HANDED, self._handed),
            ("spans", ("request", "what", "start", "end"), self._spans),
            ("iterations", ITERATION, self._iterations),
        ):
            if rows:
                taken = [rows.popleft() for _ in range(len(rows))]
                self.session.say({"t": kind, "columns": columns, "rows": taken})
