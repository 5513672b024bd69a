"""The ledger of each request: an exact partition of its time, from arrival to its last byte.

Every instant belongs to one entry. Where several things happen at once, the first of these wins: an iteration
that works on the request; being without a place in the cache; tokenising; an iteration without it; a write
that waits for the client; detokenising. What is left before submission is the gateway's, before the first
iteration the queue's, between iterations the scheduler's, and after the last one delivery's.

An iteration that works on several requests is shared by their tokens while a prompt is read. A request that
decodes there owns what the model takes for an iteration of decodes alone; the rest is the prefills'.

Requests imported from OpenTelemetry spans have stages instead of iterations: a phase of prefill and one of
decode, which hold everything that happened to the request's batch, and `not known` where no stage is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import TypedDict, cast

import polars as pl

from fathom.analysis.serving.entries import STAGES, Entry
from fathom.units import NS_PER_MS

Piece = tuple[int, int, Entry]
LEDGER = ("request", "entry", "ms", "first_ms")
TABLES = ("requests", "request_spans", "iterations", "turns")
_SPANS = {"send": Entry.STREAM, "detokenise": Entry.DETOKENISE}


class Request(TypedDict):
    """A row of the table `requests`, as far as it is read here."""

    request: int
    start_ns: int
    submitted_ns: int
    token_ns: int | None
    sent_ns: int | None
    end_ns: int


class Span(TypedDict):
    """A row of the table `request_spans`."""

    request: int
    what: str
    start_ns: int
    end_ns: int


class Iteration(TypedDict):
    """A row of the table `iterations`."""

    iteration: int
    kind: str
    start_ns: int
    prepared_ns: int | None
    computed_ns: int | None
    sampled_ns: int | None
    end_ns: int


class Turn(TypedDict):
    """A row of the table `turns`: a request in an iteration."""

    request: int
    iteration: int
    phase: str
    tokens: int
    generated: int


@dataclass
class Engine:
    """The iterations by number, with the turns of each, and what a decode takes the model alone."""

    iterations: list[Iteration]
    turns: dict[int, list[Turn]] = field(default_factory=dict)  # by iteration
    of: dict[int, list[Turn]] = field(default_factory=dict)  # by request, in order
    spans: dict[int, list[Span]] = field(default_factory=dict)  # by request
    starts: list[int] = field(default_factory=list)
    decode_ns: float | None = None
    one_by_one: bool = False  # requests wait for each other before they are submitted

    @property
    def busy(self) -> Iterator[tuple[int, int]]:
        """Start and end of every iteration."""
        return ((row["start_ns"], row["end_ns"]) for row in self.iterations)


def engine_of(tables: dict[str, pl.DataFrame]) -> Engine:
    """Index the tables of an engine."""
    engine = Engine(cast(list[Iteration], tables["iterations"].sort("start_ns").to_dicts()))
    for turn in cast(list[Turn], tables["turns"].sort("iteration").to_dicts()):
        engine.turns.setdefault(turn["iteration"], []).append(turn)
        engine.of.setdefault(turn["request"], []).append(turn)
    for span in cast(list[Span], tables["request_spans"].to_dicts()):
        engine.spans.setdefault(span["request"], []).append(span)
    engine.starts = [row["start_ns"] for row in engine.iterations]
    decodes = [_model_ns(row) for row in engine.iterations if row["kind"] == "decode"]
    engine.decode_ns = median(decodes) if decodes else None
    engine.one_by_one = len(engine.of) > 1 and all(len(turns) == 1 for turns in engine.turns.values())
    return engine


def request_ledger(tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """Return the ledger of all requests: milliseconds by request and entry, in all and to the first token.

    `ms` sums to the request's time, `first_ms` to that until its first token was written, exactly.
    """
    engine = engine_of(tables)
    by_number = {row["iteration"]: row for row in engine.iterations}
    rows = []
    for request in cast(list[Request], tables["requests"].to_dicts()):
        entire, first = (partition(request, engine, by_number, early) for early in (False, True))
        rows += [
            (request["request"], entry.value, *(part.get(entry, 0) / NS_PER_MS for part in (entire, first)))
            for entry in Entry
            if entire.get(entry) or first.get(entry)
        ]
    schema = dict(zip(LEDGER, (pl.Int64, pl.String, pl.Float64, pl.Float64), strict=True))
    return pl.DataFrame(rows, schema=schema, orient="row")


def partition(
    request: Request, engine: Engine, by_number: dict[int, Iteration], first: bool = False
) -> dict[Entry, int]:
    """Return nanoseconds by entry; with `first`, only until the first token was written."""
    turns = engine.of.get(request["request"], [])
    start, end = request["start_ns"], request["end_ns"]
    if first:
        end = min(end, request["sent_ns"] or request["token_ns"] or end)
        generated = next((place for place, turn in enumerate(turns) if turn["generated"]), len(turns) - 1)
        turns = turns[: generated + 1]
    free = Free(start, end)
    for piece in _pieces(request, turns, engine, by_number):
        free.claim(*piece)
    own = [by_number[turn["iteration"]] for turn in turns]
    submitted = request["submitted_ns"]
    free.claim(start, submitted, Entry.GATEWAY)
    free.claim(submitted, own[0]["start_ns"] if own else end, Entry.QUEUE)
    free.claim(submitted, own[-1]["end_ns"] if own else end, Entry.SCHEDULER)
    free.claim(start, end, Entry.DELIVER)
    return free.spent


def _pieces(
    request: Request, turns: list[Turn], engine: Engine, by_number: dict[int, Iteration]
) -> Iterator[Piece]:
    """Yield the known parts of the request's time, in order of precedence."""
    for turn in turns:
        iteration = by_number[turn["iteration"]]
        yield from _own(turn, iteration, engine.turns[turn["iteration"]], engine.decode_ns)
    own = [by_number[turn["iteration"]] for turn in turns]
    spans = engine.spans.get(request["request"], [])
    begins = [row["start_ns"] for row in own]
    for span in (span for span in spans if span["what"] == "preempt"):
        back = bisect_left(begins, span["start_ns"])
        if back < len(begins):
            yield span["start_ns"], begins[back], Entry.PREEMPTED
    yield from ((s["start_ns"], s["end_ns"], Entry.TOKENISE) for s in spans if s["what"] == "tokenise")
    if engine.one_by_one:
        yield from _before(request, engine)
    if own:
        yield from _others(own[0]["end_ns"], own[-1]["start_ns"], engine)
    for what, entry in _SPANS.items():
        yield from ((s["start_ns"], s["end_ns"], entry) for s in spans if s["what"] == what)
    for stage in STAGES:
        yield from ((s["start_ns"], s["end_ns"], stage) for s in spans if s["what"] == stage)


def _own(turn: Turn, iteration: Iteration, turns: list[Turn], decode_ns: float | None) -> Iterator[Piece]:
    """Yield the parts of an iteration that works on the request."""
    start, end = iteration["start_ns"], iteration["end_ns"]
    begun = iteration["prepared_ns"] or start
    computed = iteration["computed_ns"] or end
    sampled = iteration["sampled_ns"] or computed
    yield start, begun, Entry.SCHEDULER
    mine = begun + round((computed - begun) * _share(turn, turns, computed - begun, decode_ns))
    own, others = _ENTRIES[turn["phase"]]
    yield begun, mine, own
    yield mine, computed, others
    yield computed, sampled, Entry.SAMPLING
    yield sampled, end, Entry.SCHEDULER


_ENTRIES = {
    "prefill": (Entry.PREFILL, Entry.PREFILL_OTHERS),
    "recompute": (Entry.RECOMPUTE, Entry.PREFILL_OTHERS),
    "decode": (Entry.DECODE, Entry.DECODE_OTHERS),
}


def _share(turn: Turn, turns: list[Turn], model_ns: int, decode_ns: float | None) -> float:
    """Return the share of the model's time that the request's own tokens cost."""
    if all(other["phase"] == "decode" for other in turns):
        return 1.0
    if turn["phase"] == "decode" and decode_ns is not None:
        return min(1.0, decode_ns / model_ns) if model_ns > 0 else 1.0
    total = sum(other["tokens"] for other in turns)
    return turn["tokens"] / total if total else 1.0


def _before(request: Request, engine: Engine) -> Iterator[Piece]:
    """Yield the time before submission in which an engine that takes one request at a time worked."""
    low, high = request["start_ns"], request["submitted_ns"]
    served = [row for turns in engine.of.values() for row in (_residence(turns, engine),) if row]
    yield from ((max(low, s), min(high, e), Entry.QUEUE) for s, e in served if s < high and e > low)


def _residence(turns: list[Turn], engine: Engine) -> tuple[int, int]:
    first, last = engine.iterations[turns[0]["iteration"]], engine.iterations[turns[-1]["iteration"]]
    return first["start_ns"], last["end_ns"]


def _others(low: int, high: int, engine: Engine) -> Iterator[Piece]:
    """Yield iterations between two times; the request's own win anyway."""
    for row in engine.iterations[bisect_left(engine.starts, low) : bisect_right(engine.starts, high)]:
        yield row["start_ns"], row["end_ns"], Entry.WAITING


def _model_ns(row: Iteration) -> int:
    return int((row["computed_ns"] or row["end_ns"]) - (row["prepared_ns"] or row["start_ns"]))


class Free:
    """The part of a stretch of time that no entry has claimed yet."""

    def __init__(self, start: int, end: int) -> None:
        self._gaps = [(start, end)] if end > start else []
        self.spent: dict[Entry, int] = {}

    def claim(self, start: int, end: int, entry: Entry) -> None:
        """Give the free time from `start` to `end` to the entry."""
        low = bisect_right(self._gaps, start, key=lambda gap: gap[1])
        high = bisect_left(self._gaps, end, key=lambda gap: gap[0])
        if low >= high:
            return
        touched = self._gaps[low:high]
        kept = [(touched[0][0], start)] if touched[0][0] < start else []
        kept += [(end, touched[-1][1])] if touched[-1][1] > end else []
        left = sum(e - s for s, e in kept)
        taken = sum(e - s for s, e in touched) - left
        if taken:
            self.spent[entry] = self.spent.get(entry, 0) + taken
        self._gaps[low:high] = kept
