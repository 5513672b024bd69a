"""Build the tables of a serving engine from its records: requests, their spans, iterations and turns.

Where HTTP is in another process, its part of a request is joined by the engine's key: arrival, writes, spans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import polars as pl

from fathom.sounding.raw.folder import Process, Record
from fathom.sounding.schema import TABLES

PHASES = ("prefill", "decode", "recompute")
_RENAMED = {"arrival_ns": "start_ns"}
_TIMES = (*("arrival", "submitted", "token", "sent", "end", "start"), *("prepared", "computed", "sampled"))


def serving(process: Process, processes: Iterable[Process] = ()) -> dict[str, pl.DataFrame]:
    """Return the tables by name; empty ones for a program that serves nothing.

    HTTP servers may be in others of the `processes`.
    """
    asked = process.of("request")
    spans = process.of("span") + [span for other in processes for span in _spans_elsewhere(other, asked)]
    elsewhere = {row["key"]: row for other in processes for row in _handed(other)}
    requests = [_answered(row, elsewhere) for row in asked]
    iterations = sorted(process.of("iteration"), key=lambda record: record["start"])
    numbered = [{"iteration": number, **record} for number, record in enumerate(iterations)]
    turns = [
        {"iteration": record["iteration"], **_turn(*turn)} for record in numbered for turn in record["turns"]
    ]
    return {
        "requests": _table("requests", requests).sort("start_ns", "request"),
        "request_spans": _table("request_spans", spans).sort("start_ns"),
        "iterations": _table("iterations", numbered),
        "turns": _table("turns", turns),
    }


_OF_HTTP = ("arrival", "sent", "end", "chunks", "status")


def _answered(request: Record, elsewhere: dict[str, Record]) -> Record:
    """Return the request with the times of the HTTP server that handed it over.

    Its queue begins at the hand-over, because an engine may accept requests only between iterations. An
    engine may also record the first token after the server has sent it.
    """
    http = elsewhere.get(request.get("key") or "")
    if http is None:
        return request
    waits = {"submitted": min(request["submitted"], http["handed"])}
    if http["alone"] and request.get("token") and http.get("sent"):
        waits["token"] = min(request["token"], http["sent"])
    return {**request, **{name: http.get(name) for name in _OF_HTTP}, **waits}


def _handed(http: Process) -> Iterator[Record]:
    """Yield the requests that an HTTP server handed over; `alone` if it made one of the engine's only."""
    keys = Counter(row["request"] for row in http.of("handed"))
    yield from ({**row, "alone": keys[row["request"]] == 1} for row in http.of("handed"))


def _spans_elsewhere(http: Process, requests: list[Record]) -> Iterator[Record]:
    """Yield the spans of an HTTP server's requests, by the numbers that the engine gave them."""
    numbers = {request["key"]: request["request"] for request in requests if request.get("key")}
    handed: dict[int, list[int]] = {}
    for row in http.of("handed"):
        if row["key"] in numbers:
            handed.setdefault(row["request"], []).append(numbers[row["key"]])
    for span in http.of("span") if handed else ():
        yield from ({**span, "request": number} for number in handed.get(span["request"], ()))


def _turn(request: int, phase: int, tokens: int, generated: int) -> dict[str, object]:
    return {"request": request, "phase": PHASES[phase], "tokens": tokens, "generated": generated}


def _table(name: str, records: list[dict[str, object]]) -> pl.DataFrame:
    """Return records as a table; names of times get the suffix of its columns."""
    rows = [
        {_column(key): value for key, value in record.items() if _column(key) in TABLES[name]}
        for record in records
    ]
    return pl.DataFrame(rows, schema=TABLES[name], strict=False)


def _column(key: str) -> str:
    timed = f"{key}_ns" if key in _TIMES else key
    return _RENAMED.get(timed, timed)
