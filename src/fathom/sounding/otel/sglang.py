"""Requests from SGLang's spans: a root `Req xxxxxxxx`, a span per thread below it, and stages below these.

Names and meanings are those of SGLang 0.5.23 (`srt/observability/trace.py`, `req_time_stats.py`), and of the
older `srt/tracing/trace.py`: `decode loop`, `dispatch`, `dc_dispatch`. Every scheduler of a model records the
stages; those of the first are read.

Servers that only prefill or only decode have roots `prefill Req` and `decode Req` with the same bootstrap
room, which are one request here. Stages of the transfer between them have no entry in the ledger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import itemgetter

from fathom.sounding.otel.otlp import Span
from fathom.sounding.otel.requests import (
    DECODE,
    GATEWAY,
    PREEMPTED,
    PREFILL,
    QUEUE,
    RECOMPUTE,
    SCHEDULER,
    TOKENISE,
    WAITING,
    Answered,
    duration,
    set_tokens,
)

_STAGES = {
    "tokenize": TOKENISE,
    "dispatch": GATEWAY,
    "api_server_dispatch": GATEWAY,
    "dc_dispatch": GATEWAY,
    "dpc_dispatch": GATEWAY,
    "request_process": SCHEDULER,
    "prefill_waiting": QUEUE,
    "prefill_forward": PREFILL,
    "chunked_prefill": PREFILL,
    "prefill": PREFILL,
    "decode_waiting": WAITING,
    "decode_forward": DECODE,
    "decode_loop": DECODE,
}
_RETRACTED = "retract"  # an event: the scheduler discards the request's tokens
_OTHER_RANKS = ("tp_rank", "pp_rank")  # of a thread: greater than 0 repeats the first scheduler's stages
_ROLES = ("prefill", "decode", "router")
_DEEPEST = 64  # spans around a span

Key = tuple[str, str]
Stage = tuple[str, int, int]


def requests(spans: Iterable[Span]) -> list[Answered]:
    """Return the requests of SGLang among the spans."""
    by_key = {span.key: span for span in spans}
    roots = {key: span for key, span in by_key.items() if _is_root(span)}
    if not roots:
        return []
    below: defaultdict[Key, list[Span]] = defaultdict(list)
    for span in by_key.values():
        root = _root(span, by_key, roots)
        if root is not None and span.key != root:
            below[root].append(span)
    joined: defaultdict[object, list[Span]] = defaultdict(list)
    for root_span in roots.values():
        joined[_request_of(root_span)].append(root_span)
    return [_request(parts, [s for part in parts for s in below[part.key]]) for parts in joined.values()]


def _is_root(span: Span) -> bool:
    role, req, name = span.name.strip().rpartition("Req ")
    return bool(req) and bool(name) and role.strip() in ("", *_ROLES) and "rid" in span.facts


def _request_of(root: Span) -> object:
    """Return the key that the roots of a request share: the bootstrap room, if servers have roles."""
    if root.name.split()[0] not in _ROLES:
        return root.key
    return root.trace_id, root.facts.get("bootstrap_room", root.parent_span_id)


def _root(span: Span, by_key: dict[Key, Span], roots: dict[Key, Span]) -> Key | None:
    """Return the root above a span; None without one, or if the span is of another rank's thread."""
    for _ in range(_DEEPEST):
        if span.key in roots:
            return span.key
        facts = span.facts
        if any(facts.get(name) not in (None, 0, "0") for name in _OTHER_RANKS):
            return None
        parent = by_key.get(span.parent)
        if parent is None:
            return None
        span = parent
    return None


def _request(roots: list[Span], below: list[Span]) -> Answered:
    start = min(root.start_time_unix_nano for root in roots)
    request = Answered(start, max(root.end_time_unix_nano for root in roots))
    facts = {name: value for root in roots for name, value in root.facts.items()}
    set_tokens(request, facts)
    request.stages = list(_stages(below))
    ends = [end for name, _, end in request.stages if name == PREFILL]
    try:
        first = duration(facts, "time_to_first_token")
        request.token_ns = start + first if first is not None else max(ends, default=None)
    except ValueError:
        request.impossible = True
    return request


def _stages(below: list[Span]) -> Iterator[Stage]:
    """Yield the stages in order; prefills after the first one read again what a retraction discarded."""
    stages = sorted(_named(below), key=itemgetter(1, 2))
    retracted = sorted(
        {e.time_unix_nano for span in below for e in span.events or () if e.name == _RETRACTED}
    )
    for name, start, end in _merged(stages):
        again = name == PREFILL and bool(retracted) and start >= retracted[0]
        yield (RECOMPUTE if again else name), start, end
    prefills = [start for name, start, _ in stages if name == PREFILL]
    for at in retracted:
        back = next((start for start in prefills if start > at), None)
        if back is not None:
            yield PREEMPTED, at, back


def _merged(stages: list[Stage]) -> Iterator[Stage]:
    """Yield stages, joined with later ones of their name that touch them: a decode has one per token."""
    last: dict[str, Stage] = {}
    for name, start, end in stages:
        open_, since, until = last.get(name, (name, start, start))
        if start > until:
            yield open_, since, until
            since, until = start, end
        last[name] = (name, since, max(until, end))
    yield from last.values()


def _named(below: list[Span]) -> Iterator[Stage]:
    for span in below:
        name = _STAGES.get(span.name.strip().replace(" ", "_"))
        if name is not None and span.start_time_unix_nano <= span.end_time_unix_nano:
            yield name, span.start_time_unix_nano, span.end_time_unix_nano


def transfers(spans: Iterable[Span]) -> set[str]:
    """Return the names of stages between a server that prefills and one that decodes."""
    return {span.name for span in spans} & {
        *("prefill_prepare", "prefill_bootstrap", "prefill_transfer_kv_cache", "decode_prepare"),
        *("decode_bootstrap", "decode_transferred", "fake_output", "quick_finish"),
    }
