"""The ledger of requests: an exact partition, right by hand and by brute force, and on a real recording."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fathom
from benchmarks.serving.ledger import agrees, compared
from fathom.analysis.serving import Entry, request_ledger, requests_account
from fathom.sounding.schema import TABLES
from tests.support.served import unpacked

MS = 1_000_000
PROMPT_WORDS, GENERATED, WARM = 80, 12, 2  # of the recording: what its client asked for


def tables(**rows: list[dict]) -> dict[str, pl.DataFrame]:
    names = ("requests", "request_spans", "iterations", "turns")
    return {name: pl.DataFrame(rows.get(name, []), schema=TABLES[name], strict=False) for name in names}


def request(number: int, start: int, submitted: int, end: int, **more: int) -> dict:
    facts = {"prompt": 10, "cached": 0, "generated": 1, "chunks": 1, "status": 200, **more}
    return {"request": number, "start_ns": start, "submitted_ns": submitted, "end_ns": end, **facts}


def iteration(number: int, kind: str, *times: int) -> dict:
    names = ("start_ns", "prepared_ns", "computed_ns", "end_ns")
    return {"iteration": number, "kind": kind, **dict(zip(names, times, strict=True))}


def turn(number: int, of: int, phase: str, tokens: int, generated: int = 1) -> dict:
    return {"iteration": number, "request": of, "phase": phase, "tokens": tokens, "generated": generated}


def spent(ledger: pl.DataFrame, number: int, column: str = "ms") -> dict[str, float]:
    mine = ledger.filter(request=number)
    return {entry: round(ms * MS) for entry, ms in zip(mine["entry"], mine[column], strict=True) if ms}


def test_two_requests_by_hand():
    """Request 1 arrives while 0 prefills; its three tokens lengthen a decode of 0."""
    ledger = request_ledger(
        tables(
            requests=[
                request(0, 0, 10, 260, generated=3, token_ns=100, sent_ns=115),
                request(1, 50, 55, 230, token_ns=200, sent_ns=225),
            ],
            request_spans=[{"request": 0, "what": "tokenise", "start_ns": 2, "end_ns": 8}],
            iterations=[
                iteration(0, "prefill", 20, 25, 95, 100),
                iteration(1, "mixed", 110, 112, 192, 200),
                iteration(2, "decode", 210, 211, 231, 240),
            ],
            turns=[
                turn(0, 0, "prefill", 10),
                turn(1, 0, "decode", 1),
                turn(1, 1, "prefill", 3),
                turn(2, 0, "decode", 1),
            ],
        )
    )
    first = {"gateway": 4, "tokenise": 6, "queue": 10, "prefill": 70}
    scheduler = (5 + 5) + (2 + 8) + (1 + 9) + (10 + 10)
    decode = {"decode": 20 + 20, "decode: others' prefill": 60}
    assert spent(ledger, 0) == {**first, **decode, "scheduler": scheduler, "deliver": 20}
    assert spent(ledger, 0, "first_ms") == {**first, "scheduler": 10, "deliver": 15}
    others = {"prefill": 60, "prefill: others' tokens": 20, "scheduler": 10}
    assert spent(ledger, 1) == {"gateway": 5, "queue": 55, **others, "deliver": 30}


def test_a_preempted_request_waits_for_the_cache_and_reads_its_tokens_again():
    ledger = request_ledger(
        tables(
            requests=[request(0, 0, 0, 100, generated=2)],
            request_spans=[{"request": 0, "what": "preempt", "start_ns": 30, "end_ns": 31}],
            iterations=[
                iteration(0, "prefill", 0, 0, 20, 20),
                iteration(1, "decode", 40, 40, 60, 60),
                iteration(2, "prefill", 70, 70, 95, 95),
            ],
            turns=[turn(0, 0, "prefill", 10), turn(1, 1, "decode", 1), turn(2, 0, "recompute", 11)],
        )
    )
    assert spent(ledger, 0) == {
        "prefill": 20,
        "scheduler": 10,
        "preempted": 40,
        "recompute": 25,
        "deliver": 5,
    }


def test_requests_of_an_engine_that_takes_one_at_a_time_queue_before_they_are_submitted():
    ledger = request_ledger(
        tables(
            requests=[request(0, 0, 5, 50), request(1, 10, 60, 90)],
            iterations=[iteration(0, "prefill", 5, 5, 45, 45), iteration(1, "prefill", 65, 65, 85, 85)],
            turns=[turn(0, 0, "prefill", 10), turn(1, 1, "prefill", 10)],
        )
    )
    assert spent(ledger, 1) == {"gateway": 15, "queue": 40, "prefill": 20, "deliver": 5}


def painted(request: dict, frames: dict[str, pl.DataFrame]) -> dict[str, int]:
    """Assign every nanosecond to an entry by the rules as they are stated, one instant after the other."""
    start, end = request["start_ns"], request["end_ns"]
    mine = frames["turns"].filter(request=request["request"]).join(frames["iterations"], on="iteration")
    mine = mine.sort("start_ns").to_dicts()
    every = frames["iterations"].to_dicts()
    spans = frames["request_spans"].filter(request=request["request"]).to_dicts()
    counts: dict[str, int] = {}
    for at in range(start, end):
        counts_in = next((row for row in mine if row["start_ns"] <= at < row["end_ns"]), None)
        inside = {span["what"] for span in spans if span["start_ns"] <= at < span["end_ns"]}
        if counts_in is not None:
            working = counts_in["prepared_ns"] <= at < counts_in["computed_ns"]
            entry = counts_in["phase"] if working else "scheduler"
        elif "tokenise" in inside:
            entry = "tokenise"
        elif (
            mine
            and mine[0]["end_ns"] <= at < mine[-1]["start_ns"]
            and any(row["start_ns"] <= at < row["end_ns"] for row in every)
        ):
            entry = "waiting for others"
        elif "send" in inside:
            entry = "stream out"
        elif "detokenise" in inside:
            entry = "detokenise"
        elif at < request["submitted_ns"]:
            entry = "gateway"
        elif mine and at < mine[0]["start_ns"]:
            entry = "queue"
        elif mine and at < mine[-1]["end_ns"]:
            entry = "scheduler"
        else:
            entry = "deliver" if mine else "queue"
        counts[entry] = counts.get(entry, 0) + 1
    return counts


def drawn(seed: int) -> dict[str, pl.DataFrame]:
    """Draw an engine that decodes two requests together at times, with spans anywhere."""
    draw = np.random.default_rng(seed)
    at, iterations, turns = 20, [], []
    for number in range(8):
        start = at + int(draw.integers(0, 6))
        times = np.sort(draw.integers(0, 12, 3)) + start
        at = int(times[-1])
        iterations.append(iteration(number, "decode", start, *map(int, times)))
        members = draw.choice(3, size=int(draw.integers(1, 3)), replace=False)
        turns += [turn(number, int(of), "decode", 1) for of in members]
    begins = [int(b) for b in draw.integers(0, 15, 3)]
    requests = [request(n, begin, begin + 4, at + int(draw.integers(1, 9))) for n, begin in enumerate(begins)]
    spans = [
        {"request": int(draw.integers(0, 3)), "what": what, "start_ns": low, "end_ns": low + 5}
        for what in ("tokenise", "send", "detokenise", "send")
        for low in [int(draw.integers(0, at))]
    ]
    return tables(requests=requests, request_spans=spans, iterations=iterations, turns=turns)


@pytest.mark.parametrize("seed", range(12))
def test_brute_force_over_every_instant(seed):
    frames = drawn(seed)
    ledger = request_ledger(frames)
    for row in frames["requests"].to_dicts():
        assert spent(ledger, row["request"]) == painted(row, frames)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """`transformers serve` under 2 requests/s on two busy cores, with what its client saw."""
    return unpacked("transformers", tmp_path_factory.mktemp("serving"))


def test_every_ledger_sums_to_its_request(recorded):
    sounding = fathom.open(recorded / "made.fathom")
    requests = sounding.table("requests").collect()
    sums = sounding.request_ledger.group_by("request").agg(pl.col("ms", "first_ms").sum())
    both = requests.join(sums, on="request")
    assert both.height == 20 + WARM
    latency, first = (both[name] - both["start_ns"] for name in ("end_ns", "sent_ns"))
    assert ((both["ms"] * MS).round().cast(pl.Int64) - latency).abs().max() == 0
    assert ((both["first_ms"] * MS).round().cast(pl.Int64) - first).abs().max() == 0


def test_ledgers_agree_with_the_client(recorded):
    """Three of the client's 20 clocks stopped late: others used its cores (at most 23 ms)."""
    client = json.loads((recorded / "client.json").read_text())
    pairs = compared(recorded / "made.fathom", client)
    assert sum(agrees(*pair) for pair in pairs) >= 17
    assert np.median([abs(seen - ledger) / seen for seen, ledger in pairs]) < 0.005


def test_tokens_and_iterations_by_hand_count(recorded):
    sounding = fathom.open(recorded / "made.fathom")
    requests, turns = sounding.table("requests").collect(), sounding.table("turns").collect()
    assert requests["generated"].to_list() == [4] * WARM + [GENERATED] * 20
    read = turns.filter(phase="prefill").group_by("request").agg(pl.col("tokens").sum()).sort("request")
    assert read["tokens"].to_list() == (requests["prompt"] - requests["cached"]).to_list()
    decoded = turns.filter(phase="decode").group_by("request").agg(pl.len()).sort("request")
    assert decoded["len"].to_list() == (requests["generated"] - 1).to_list()
    kinds = turns.group_by("iteration").agg(pl.col("phase").unique().sort()).sort("iteration")
    named = {("decode",): "decode", ("prefill",): "prefill", ("decode", "prefill"): "mixed"}
    expected = [named[tuple(phases)] for phases in kinds["phase"].to_list()]
    assert sounding.table("iterations").collect()["kind"].to_list() == expected


def test_steps_are_the_iterations(recorded):
    sounding = fathom.open(recorded / "made.fathom")
    steps = sounding.table("steps").collect()
    counted = steps.filter(pl.col("kind") != "waiting")
    assert counted.height == sounding.table("iterations").collect().height - 1  # the first begins no step
    assert "waiting" not in {kind.name for kind in sounding.examine().kinds}


def test_the_account_is_of_requests_and_not_of_averages(recorded):
    serving = fathom.open(recorded / "made.fathom").examine().serving
    assert serving.requests == 22 and serving.failed == 0
    assert serving.e2e_ms.p90 is not None and serving.e2e_ms.p99 is None  # 0.2 requests lie beyond
    assert sum(row.mean_ms for row in serving.ledger) == pytest.approx(serving.e2e_ms.mean)
    assert sum(row.first_mean_ms for row in serving.ledger) == pytest.approx(serving.ttft_ms.mean)
    slow = [request.ms for request in serving.slowest]
    assert slow == sorted(slow, reverse=True) and slow[0] == pytest.approx(serving.e2e_ms.max)
    assert all(sum(request.entries.values()) == pytest.approx(request.ms) for request in serving.slowest)


def test_an_engine_without_iterations_has_an_account():
    serving = requests_account(tables(requests=[request(0, 0, 5, 50, status=500, generated=0)]))
    assert serving.failed == 1 and serving.ttft_ms is None and serving.kv_peak is None
    assert [(row.entry, round(row.mean_ms * MS)) for row in serving.ledger] == [
        (Entry.GATEWAY, 5),
        (Entry.QUEUE, 45),
    ]
