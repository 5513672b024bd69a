"""A recording of `vllm serve`: its requests beside the client's clock, vLLM's own metrics and its spans."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest

import fathom
from benchmarks.serving.ledger import agrees
from fathom.load.exposition import Reading, reading
from fathom.report.heading import headline
from fathom.report.serving import facts
from fathom.sounding import import_raw, import_traces
from tests.support.served import unpacked

MS = 1_000_000
WARM, SENT, GENERATED = 2, 20, 12
# Tokens of each answer that a client asked for after the load. `n: 2` and a batch of two prompts
# are two requests of the engine each. One ends at its stop string, and one client left.
ODD = {"not streamed": [12], "two answers": [10, 10], "plain": [40], "stopped": [1], "batch": [6, 6]}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """`vllm serve` of a tiny Llama on two busy cores, with what its client saw."""
    return unpacked("vllm", tmp_path_factory.mktemp("vllm"))


@pytest.fixture(scope="module")
def requests(recorded) -> pl.DataFrame:
    """Return the requests in order of arrival, with the sum of their ledgers."""
    sounding = fathom.open(recorded / "made.fathom")
    sums = sounding.request_ledger.group_by("request").agg(pl.col("ms", "first_ms").sum())
    return sounding.table("requests").collect().join(sums, on="request").sort("start_ns")


def test_every_ledger_agrees_with_the_client(recorded, requests):
    client = json.loads((recorded / "client.json").read_text())
    seen = [(c["end_ns"] - c["start_ns"]) / MS for c in client]
    ledger = requests["ms"][WARM : WARM + SENT].to_list()
    assert len(seen) == SENT
    assert all(agrees(*pair) for pair in zip(seen, ledger, strict=True))


def test_every_ledger_sums_to_its_request(requests):
    latency, first = (requests[name] - requests["start_ns"] for name in ("end_ns", "sent_ns"))
    assert ((requests["ms"] * MS).round().cast(pl.Int64) - latency).abs().max() == 0
    assert ((requests["first_ms"] * MS).round().cast(pl.Int64) - first).abs().max() == 0
    order = ("start_ns", "submitted_ns", "token_ns", "sent_ns", "end_ns")
    assert all(list(times) == sorted(times) for times in requests.select(order).iter_rows())


def test_requests_have_what_only_http_knows(recorded, requests):
    load = requests[WARM : WARM + SENT]
    assert set(requests["status"]) == {200}
    # One for the role and one for the end; a frontend that is late puts several tokens into one.
    assert load["chunks"].max() == GENERATED + 2 and load["chunks"].min() > 2
    spans = fathom.open(recorded / "made.fathom").table("request_spans").collect()
    assert set(spans.filter(what="tokenise")["request"]) == set(requests["request"])


def growth(recorded: Path) -> dict[str, float]:
    """Return how vLLM's own counters grew during the load."""
    before, after = (metrics(recorded, name) for name in ("before", "after"))
    return {name: after.totals[name] - before.totals[name] for name in after.totals}


def metrics(recorded: Path, name: str) -> Reading:
    result = reading((recorded / f"{name}.txt").read_text(), 0)
    assert result is not None
    return result


def test_tokens_are_those_of_vllms_metrics(recorded, requests):
    grown, load = growth(recorded), requests[WARM : WARM + SENT]
    assert grown["finished"] == SENT and grown["preemptions"] == 0
    assert grown["generated"] == SENT * GENERATED == load["generated"].sum()
    assert grown["prompt"] == load["prompt"].sum()
    assert grown["hits"] == load["cached"].sum()
    turns = fathom.open(recorded / "made.fathom").table("turns").collect()
    mine = turns.join(load.select("request"), on="request")
    assert mine.filter(phase="prefill")["tokens"].sum() == grown["prompt"]
    assert mine["generated"].sum() == grown["generated"]


def test_metrics_of_a_real_vllm_are_all_read(recorded):
    read = metrics(recorded, "after")
    assert {"running", "waiting", "cache", "block"} <= set(read.gauges)
    assert {"asked", "hits", "preemptions", "finished", "prompt", "generated"} <= set(read.totals)
    assert {"ttft", "queue", "prefill", "e2e"} == set(read.histograms)
    assert read.histograms["e2e"].count == WARM + SENT


def test_requests_that_end_in_unusual_ways_are_recorded(requests):
    odd = requests[WARM + SENT :]["generated"].to_list()
    left = max(odd)
    odd.remove(left)
    assert odd == [count for counts in ODD.values() for count in counts] and left > 100
    (aborted,) = requests.filter(generated=left).to_dicts()
    assert 400 < aborted["ms"] < 600  # its client left after half a second


def test_workers_of_an_engine_are_named_and_no_problem(recorded):
    """The engine and its worker have different steps: nobody expects distinct ranks of them."""
    sounding = fathom.open(recorded / "made.fathom")
    assert sounding.manifest.problems == []
    of = sounding.examine().sounding
    assert of.programs == {0: "VLLM::EngineCore", 1: "VLLM::Worker"}
    assert "rank 0 VLLM::EngineCore, rank 1 VLLM::Worker" in " ".join(map(str, headline(of)))


def test_workers_without_distinct_ranks_are_a_problem(recorded, tmp_path):
    """As those of two engines: each is found again under a number that its program did not choose."""
    raw = tmp_path / "serve.fathom"
    shutil.copytree(recorded / "serve.fathom", raw)
    worker = next(path for path in (raw / "raw").glob("proc-*") if "VLLM::Worker" in path.read_text())
    (worker.parent / "proc-1.jsonl").write_text(
        re.sub(r'"pid": ?\d+', '"pid": 1', worker.read_text(), count=1)
    )
    (problem,) = import_raw(raw, tmp_path / "made.fathom").manifest.problems
    assert problem.text.startswith("3 processes ran steps without distinct ranks: rank 0 is VLLM::EngineCore")


def test_vllms_spans_describe_the_same_requests(recorded, requests, tmp_path):
    """Its spans have neither the gateway nor the aborted request."""
    import_traces([recorded / "spans.jsonl"], tmp_path / "spans.fathom")
    spans = fathom.open(tmp_path / "spans.fathom").table("requests").collect().sort("start_ns")
    load, own = requests[: WARM + SENT], spans[: WARM + SENT]
    assert spans.height == requests.height - 1
    assert own["generated"].to_list() == load["generated"].to_list()
    assert own["prompt"].to_list() == load["prompt"].to_list()
    assert (own["start_ns"] >= load["start_ns"]).all()
    late = (load["end_ns"] - own["end_ns"]) / MS
    assert late.abs().median() < 5


def test_a_cache_that_is_hardly_used_is_not_called_empty(recorded):
    """1 GB holds half a million tokens of this model: 0 % would read as if nothing had been measured."""
    serving = fathom.open(recorded / "made.fathom").examine().serving
    assert serving is not None and 0 < serving.kv_peak < 0.005
    (share,) = (fact.split()[-3] for fact in facts(serving) if fact.startswith("KV cache"))
    assert float(share) == pytest.approx(100 * serving.kv_peak, rel=0.05)
