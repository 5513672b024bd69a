"""Turn spans of serving engines into tables: `requests`, and stages as `request_spans`.

Each request also has a span `not known` over all of its time, which the ledger counts where no stage is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from fathom.errors import unimportable
from fathom.sounding.events import Origin, Trace
from fathom.sounding.manifest import Problem
from fathom.sounding.otel import sglang, vllm
from fathom.sounding.otel.otlp import Span, Spans, read_spans
from fathom.sounding.otel.requests import UNKNOWN, Answered
from fathom.sounding.schema import TABLES, empty

_LATEST = 2**61  # ns: times that tables may have
_SHOWN = 3  # names in a sentence
_NO_ITERATIONS = "OpenTelemetry spans describe requests one by one, not the engine's iterations"
_PHASES = "spans do not separate a request's own prefill and decode from those of others in the same batch"
_OUTSIDE = {
    "vLLM": "vLLM's span begins when the engine gets the request, so the HTTP server before it is missing",
    "SGLang": "SGLang's span begins when its tokenizer process gets the request, after the HTTP server",
}


def read_otel(paths: list[Path]) -> Trace:
    """Return the requests in all files as one trace, because a request's spans may be in several.

    Raises BadInputError if a file cannot be read, or no span is a request of vLLM or SGLang.
    """
    read = read_spans(paths)
    spans = list(read.spans.values())
    of = {"vLLM": vllm.requests(spans), "SGLang": sglang.requests(spans)}
    every = [request for requests in of.values() for request in requests]
    kept = sorted(filter(_is_possible, every), key=lambda request: (request.start_ns, request.end_ns))
    if not kept:
        raise unimportable(paths[0], _lacks(read))
    engines = [name for name, requests in of.items() if requests]
    return Trace(
        tables={
            **{name: empty(name) for name in ("ops", "launches", "kernels")},
            "requests": _requests(kept),
            "request_spans": _stages(kept),
        },
        origin=Origin(None, None, None, None, {}, [], {}),
        problems=list(_problems(read, every, kept, engines)),
        facts={"engines": engines},
        abstained=list(_abstained(spans, engines, kept)),
    )


def _is_possible(request: Answered) -> bool:
    return 0 < request.start_ns <= request.end_ns < _LATEST


def _lacks(read: Spans) -> str:
    named = "spans of vLLM are called llm_request, those of SGLang Req …"
    names = Counter(span.name for span in read.spans.values())
    if not names:
        return f"it has no spans; {named}"
    shown = ", ".join(name for name, _ in names.most_common(_SHOWN))
    return f"none of its {len(read.spans):,} spans ({shown}) is a request with valid times; {named}"


def _requests(kept: list[Answered]) -> pl.DataFrame:
    rows = [
        {
            "request": number,
            "start_ns": request.start_ns,
            "submitted_ns": _within(request, request.submitted_ns),
            "token_ns": request.token_ns if _is_inside(request) else None,
            "end_ns": request.end_ns,
            "prompt": request.prompt,
            "cached": request.cached,
            "generated": request.generated,
        }
        for number, request in enumerate(kept)
    ]
    return pl.DataFrame(rows, schema=TABLES["requests"])


def _stages(kept: list[Answered]) -> pl.DataFrame:
    rows = [
        {
            "request": number,
            "what": name,
            "start_ns": _within(request, start),
            "end_ns": _within(request, end),
        }
        for number, request in enumerate(kept)
        for name, start, end in [*request.stages, (UNKNOWN, request.start_ns, request.end_ns)]
    ]
    return pl.DataFrame(rows, schema=TABLES["request_spans"]).sort("start_ns", maintain_order=True)


def _within(request: Answered, at: int) -> int:
    return min(max(at, request.start_ns), request.end_ns)


def _is_inside(request: Answered) -> bool:
    return request.token_ns is None or request.start_ns <= request.token_ns <= request.end_ns


def _overruns(request: Answered) -> bool:
    """Return whether a latency is impossible, or a stage or the first token lies outside of the request."""
    outside = any(start < request.start_ns or end > request.end_ns for _, start, end in request.stages)
    return request.impossible or outside or not _is_inside(request)


def _problems(
    read: Spans, every: list[Answered], kept: list[Answered], engines: list[str]
) -> Iterator[Problem]:
    if read.damaged:
        text = (
            f"{_times(read.damaged, 'object')} of the file could not be decoded, so requests may be missing."
        )
        yield Problem("objects-damaged", text, read.damaged, spoils=["requests"])
    if read.twice:
        text = (
            f"{_times(read.twice, 'span')} occurred again and counted once; an exporter had sent them twice."
        )
        yield Problem("spans-twice", text, read.twice)
    if left := len(every) - len(kept):
        text = f"{_times(left, 'request')} had no valid start and end, and were left out."
        yield Problem("bad-duration", text, left, spoils=["requests"])
    if cut := sum(map(_overruns, kept)):
        text = (
            f"{_times(cut, 'request')} had stages that do not fit into the latency; the excess was cut off."
        )
        yield Problem("stages-overrun", text, cut, spoils=["request_spans"])
    if len(read.services) > 1 or len(engines) > 1:
        names = ", ".join(sorted(read.services)[:_SHOWN]) or " and ".join(engines)
        text = f"The spans come from several services ({names}), whose requests are counted together."
        yield Problem("several-services", text, max(len(read.services), len(engines)))


def _times(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _abstained(spans: list[Span], engines: list[str], kept: list[Answered]) -> Iterator[dict[str, str]]:
    yield {"what": "iterations and batches", "why": _NO_ITERATIONS}
    yield {"what": "shares of a batch", "why": _PHASES}
    yield from ({"what": f"gateway of {name}", "why": _OUTSIDE[name]} for name in engines)
    if "vLLM" in engines:
        yield {"what": "preemptions", "why": "vLLM's spans do not say whether a request was preempted"}
    if all(request.cached is None for request in kept):
        yield {"what": "prefix cache", "why": "spans lack the number of cached tokens"}
    if transferred := sglang.transfers(spans):
        why = (
            f"stages between servers ({', '.join(sorted(transferred))}) have no entry, and count as not known"
        )
        yield {"what": "transfer of the KV cache", "why": why}
