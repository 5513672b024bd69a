"""Requests from vLLM's spans `llm_request`: one span per request, with latencies in seconds as attributes.

Names and meanings are those of vLLM 0.33 (`vllm/tracing/utils.py`, `OutputProcessor.do_tracing`): the queue,
prefill and decode are differences of the engine's own clock, the latency and the time to the first token
those of the front end. The older engine V0 has neither prefill nor decode, and its queue counts from the
arrival, so they are what remains to the first token and to the end.

The attributes have lengths and no places. Stages follow each other. The time that they leave lies before the
queue or after a token (between processes, in the front end): the spans do not say where.
"""

from __future__ import annotations

from fathom.sounding.otel.otlp import Span
from fathom.sounding.otel.requests import DECODE, PREFILL, QUEUE, Answered, Facts, duration, set_tokens

NAME = "llm_request"


def requests(spans: list[Span]) -> list[Answered]:
    """Return the requests of vLLM among the spans."""
    return [_request(span) for span in spans if span.name == NAME]


def _request(span: Span) -> Answered:
    facts, start = span.facts, span.start_time_unix_nano
    request = Answered(start, span.end_time_unix_nano)
    set_tokens(request, facts)
    try:
        _set_times(request, facts)
    except ValueError:
        request.impossible = True
    return request


def _set_times(request: Answered, facts: Facts) -> None:
    """Set the end, the first token and the stages. Raises ValueError for an impossible latency."""
    latency = duration(facts, "e2e")
    if latency is not None:
        request.end_ns = request.start_ns + latency
    if request.generated == 0:
        return  # it ended before its first token: vLLM subtracts times that were never set
    first, queue = duration(facts, "time_to_first_token"), duration(facts, "time_in_queue")
    prefill, decode = duration(facts, "time_in_model_prefill"), duration(facts, "time_in_model_decode")
    inference = duration(facts, "time_in_model_inference")
    entire = request.end_ns - request.start_ns
    if first is not None:
        request.token_ns = request.start_ns + first
    if decode is None and inference is not None and prefill is not None:
        decode = inference - prefill
    if prefill is None and inference is None and queue is not None and first is not None:
        prefill, decode = first - queue, entire - first
    lengths = {QUEUE: queue, PREFILL: prefill, DECODE: decode if prefill is not None else None}
    request.impossible = any(length is not None and length < 0 for length in lengths.values())
    if not request.impossible:
        _place(request, lengths, first)


def _place(request: Answered, lengths: dict[str, int | None], first: int | None) -> None:
    """Place the stages one after the other, as late as the end and the first token allow."""
    known = {name: length for name, length in lengths.items() if length is not None}
    spare = request.end_ns - request.start_ns - sum(known.values())
    if first is not None and known.keys() & {QUEUE, PREFILL}:
        spare = min(spare, first - known.get(QUEUE, 0) - known.get(PREFILL, 0))
    request.impossible = spare < 0
    at = request.start_ns + max(spare, 0)
    for name, length in known.items():
        request.stages.append((name, at, at + length))
        at += length
