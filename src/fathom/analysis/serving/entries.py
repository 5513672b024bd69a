"""The entries of a request's ledger, in the order in which a request passes through them."""

from __future__ import annotations

from enum import StrEnum


class Entry(StrEnum):
    """A use of a request's time; the value is its name in the ledger, `MEANING` explains it."""

    GATEWAY = "gateway"
    TOKENISE = "tokenise"
    QUEUE = "queue"
    PREFILL = "prefill"
    PREFILL_OTHERS = "prefill: others' tokens"
    RECOMPUTE = "recompute"
    DECODE = "decode"
    DECODE_OTHERS = "decode: others' prefill"
    WAITING = "waiting for others"
    PREEMPTED = "preempted"
    SAMPLING = "sampling"
    SCHEDULER = "scheduler"
    DETOKENISE = "detokenise"
    DELIVER = "deliver"
    STREAM = "stream out"
    PREFILL_PHASE = "prefill phase"
    DECODE_PHASE = "decode phase"
    UNKNOWN = "not known"


MEANING = {
    Entry.GATEWAY: "read, parse, route",
    Entry.TOKENISE: "text to tokens",
    Entry.QUEUE: "until the first iteration",
    Entry.PREFILL: "own share of its iterations",
    Entry.PREFILL_OTHERS: "other tokens in them",
    Entry.RECOMPUTE: "after a preemption",
    Entry.DECODE: "iterations that decode",
    Entry.DECODE_OTHERS: "prefills lengthen them",
    Entry.WAITING: "iterations without it",
    Entry.PREEMPTED: "no place in the cache",
    Entry.SAMPLING: "choice of the next token",
    Entry.SCHEDULER: "around iterations",
    Entry.DETOKENISE: "tokens to text",
    Entry.DELIVER: "last token to last write",
    Entry.STREAM: "the client is slow to read",
    Entry.PREFILL_PHASE: "first iteration to 1st token",
    Entry.DECODE_PHASE: "first to last token",
    Entry.UNKNOWN: "the spans do not say",
}

# Spans of engines that Fathom did not record: stages by name, the first of several at one time first.
STAGES = (
    Entry.RECOMPUTE,
    Entry.PREEMPTED,
    Entry.TOKENISE,
    Entry.QUEUE,
    Entry.PREFILL_PHASE,
    Entry.WAITING,
    Entry.DECODE_PHASE,
    Entry.SCHEDULER,
    Entry.GATEWAY,
    Entry.UNKNOWN,
)
