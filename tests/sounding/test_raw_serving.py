"""Requests whose HTTP server and engine are different processes, joined by the engine's key."""

from __future__ import annotations

from typing import Any

from fathom.sounding.raw.folder import Process
from fathom.sounding.raw.serving import serving


def engine(*keys: str | None) -> Process:
    """Return an engine that answered these requests, ten apart, each within five."""
    rows = []
    for number, key in enumerate(keys):
        at = 100 + 10 * number
        times = {"arrival": at, "submitted": at + 1, "token": at + 2, "sent": None, "end": at + 5}
        counts = {"prompt": 3, "cached": 0, "generated": 2, "chunks": 0, "status": None}
        rows.append({"request": number, **times, **counts, "key": key})
    preempted = {"request": 0, "what": "preempt", "start": 103, "end": 103}
    return Process(1, {"request": rows, "span": [preempted]})


def http(pid: int, *handed: tuple[int, str, int], spans: tuple[tuple[int, str], ...] = ()) -> Process:
    """Return an HTTP server that handed requests (its number, the engine's key, arrival) to an engine."""
    rows: list[dict[str, Any]] = [
        {"request": number, "key": key, "arrival": at, "handed": at + 1, "sent": at + 12, "end": at + 20}
        | {"chunks": 4, "status": 200}
        for number, key, at in handed
    ]
    spent = [{"request": number, "what": what, "start": 96, "end": 97} for number, what in spans]
    return Process(pid, {"handed": rows, "span": spent})


def test_http_knows_arrival_writes_and_spans_of_the_engines_requests():
    own = engine("a", "b")
    servers = [http(2, (0, "b", 90), spans=((0, "tokenise"),)), http(3, (0, "a", 95), spans=((0, "send"),))]
    made = serving(own, [own, *servers])
    rows = made["requests"].sort("request").to_dicts()
    times = [(row["start_ns"], row["submitted_ns"], row["sent_ns"], row["end_ns"]) for row in rows]
    assert times == [(95, 96, 107, 115), (90, 91, 102, 110)]
    assert [(row["status"], row["chunks"]) for row in rows] == [(200, 4)] * 2
    spans = {(span["request"], span["what"]) for span in made["request_spans"].to_dicts()}
    assert spans == {(0, "preempt"), (0, "send"), (1, "tokenise")}


def test_an_engine_notes_the_first_token_after_http_has_sent_it():
    """As SGLang does, which sends a batch's tokens while it processes them."""
    own = engine("a", "b")
    made = serving(own, [own, http(2, (0, "a", 95), (1, "b", 90))])
    assert made["requests"].sort("request")["token_ns"].to_list() == [102, 102]


def test_one_request_of_http_may_be_several_of_the_engine():
    own = engine("0_a", "1_a")
    server = http(2, (7, "0_a", 90), (7, "1_a", 90), spans=((7, "tokenise"),))
    made = serving(own, [own, server])
    assert made["requests"]["start_ns"].to_list() == [90, 90]
    assert sorted(made["request_spans"].filter(what="tokenise")["request"]) == [0, 1]


def test_requests_without_a_server_keep_the_engines_times():
    """Offline generation, a frontend that was killed, and recordings made before keys were recorded."""
    own = engine("a", None)
    del own.records["request"][1]["key"]
    other = http(2, (0, "of another engine", 90), spans=((0, "tokenise"),))
    made = serving(own, [own, other])
    assert made["requests"]["start_ns"].to_list() == [100, 110]
    assert made["requests"]["end_ns"].to_list() == [105, 115]
    assert made["request_spans"]["what"].to_list() == ["preempt"]
