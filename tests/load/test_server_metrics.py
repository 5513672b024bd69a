"""The server's own metrics during a load test: growth of histograms, gauges in time, and disagreements."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fathom.analysis.serving import Entry
from fathom.diagnosis import diagnose_load
from fathom.diagnosis.serving.server import facts_of_server
from fathom.load import (
    Load,
    Refusal,
    Sent,
    Sweep,
    Workload,
    frontier,
    judged,
    scraped,
    server_account,
    shared_share,
)
from fathom.load.exposition import Reading, reading
from fathom.load.scraping import Scraped, UnreadableError, scrape
from fathom.report import print_load
from tests.cli.test_cli import invoke
from tests.support.engine_metrics import Engine, serving

MS, S = 1_000_000, 1_000_000_000
ZERO = 1_790_000_000 * S
QUEUE = np.linspace(0.05, 0.95, 40)  # seconds in the queue, of 40 requests
PREFILL, DECODE, HTTP = 0.1, 0.4, 0.002


def sent(outside_ms: float = 2.0, n: int = 40) -> list[Sent]:
    """Requests as the client saw them: the server's latencies, and time outside of the server."""
    made = []
    for number, queue in enumerate(np.resize(QUEUE, n)):
        at = ZERO + S + number * 500 * MS
        first = round((queue + PREFILL) * S + outside_ms * MS)
        end = at + first + round(DECODE * S)
        made.append(Sent(at, at, end, at + first, [DECODE * 1e3 / 9] * 9, tokens=10, prompt=100))
    return made


def run(
    engine: Engine, states: list[dict], served: int = 40, hits: float = 0.0, preemptions: int = 0
) -> Scraped:
    """Return readings of an engine that had answered others, then answers the requests during `states`."""
    for _ in range(7):
        engine.finish(ttft=9.0, queue=4.0, e2e=9.5)
    engine.of["asked"].inc(5000)
    result = Scraped("http://s/metrics", [read(engine, 0.0)])
    for number, gauges in enumerate(states):
        engine.now(**gauges)
        result.readings.append(read(engine, 2.0 + number))
    for queue in np.resize(QUEUE, served):
        latencies = {
            "ttft": queue + PREFILL,
            "queue": queue,
            "e2e": queue + PREFILL + DECODE,
            "prefill": PREFILL,
        }
        engine.finish(**{name: float(s) for name, s in latencies.items() if name in engine.of})
    engine.of["asked"].inc(4000)
    engine.of["hits"].inc(4000 * hits)
    engine.of["preemptions"].inc(preemptions)
    engine.now(running=0, waiting=0, cache=0.0)
    result.readings.append(read(engine, 30.0))
    return result


def read(engine: Engine, at_s: float) -> Reading:
    made = reading(engine.text(), ZERO + round(at_s * S))
    assert made is not None
    return made


FULL = [{"running": 4, "waiting": 3, "cache": 0.2}] * 8 + [{"running": 3, "waiting": 0, "cache": 0.1}] * 2


def account(states: list[dict] = FULL, engine: str = "vllm", outside_ms: float = 2.0, **more):
    requests = sent(outside_ms)
    return server_account(run(Engine(engine), states, **more), requests)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_histograms_are_those_of_the_run_alone(engine):
    """Seven slow requests before the run, whose sums are in every reading, do not count."""
    server, notes = account(engine=engine, hits=0.25, preemptions=3)
    assert notes == [] and (server.finished, server.preemptions) == (40, 3)
    assert server.queue.n == 40 and server.queue.mean == pytest.approx(1e3 * QUEUE.mean())
    assert server.ttft.mean == pytest.approx(1e3 * (QUEUE + PREFILL).mean())
    assert server.hit_rate == pytest.approx(0.25)
    for bounds, share in ((server.queue.p50, 0.5), (server.queue.p90, 0.9)):
        assert bounds[0] <= 1e3 * np.quantile(QUEUE, share, method="inverted_cdf") <= bounds[1]


def test_gauges_are_those_while_requests_were_under_way():
    """The readings before the first request and after the last one, of an idle server, do not count."""
    idle = [{"running": 0, "waiting": 0, "cache": 0.0}]
    engine = Engine()
    metrics = run(engine, [*FULL, *idle * 30])
    server, _ = server_account(metrics, sent())
    at = [state.at_s for state in server.states]
    assert at[0] == 2.0 and at[-1] <= 1 + 39 * 0.5 + 1.5 and len(at) < 25
    assert [(s.running, s.waiting, s.cache) for s in server.states[:1]] == [(4, 3, 0.2)]


def test_engines_of_a_server_add_up_and_the_fullest_cache_counts():
    text = """
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 5.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 10.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 4.0
"""
    made = reading(text, 0)
    assert made.gauges == {"running": 8, "cache": 0.75} and made.totals == {"finished": 14}


def test_older_names_and_schedulers_that_report_the_same():
    old = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\nvllm:num_requests_waiting 2\n'
    old += "vllm:num_requests_running NaN\n"
    assert reading(old, 0).gauges == {"cache": 0.5, "waiting": 2}
    ranks = "".join(f'sglang:num_running_reqs{{tp_rank="{rank}",pp_rank="0"}} 6.0\n' for rank in range(4))
    queues = "".join(
        f'sglang:num_queue_reqs{{priority="{of}"}} {n}\n' for of, n in (("", 5), ("1", 2), ("2", 3))
    )
    stage = 'sglang:per_stage_req_latency_seconds_{}{{stage="{}"}} {}\n'
    stages = "".join(
        stage.format(part, of, 7) for part in ("count", "sum") for of in ("prefill_forward", "decode_loop")
    )
    made = reading(ranks + queues + stages, 0)
    assert made.gauges == {"running": 6, "waiting": 5} and made.histograms["prefill"].sum == 7


def test_a_counter_that_appears_during_the_run_began_at_zero():
    """SGLang's counter of cached tokens has no series before its first hit."""
    first, last = Engine("sglang"), Engine("sglang")
    last.of["asked"].inc(100)
    last.of["hits"].inc(40)
    without = "\n".join(line for line in first.text().splitlines() if "cached_tokens" not in line)
    readings = [reading(without, ZERO), read(last, 9.0)]
    server, _ = server_account(Scraped("u", readings), [])
    assert server.hit_rate == pytest.approx(0.4)


def test_a_hit_rate_in_percent_is_not_known():
    rows = [
        reading(f"sglang:num_running_reqs 1\nsglang:cache_hit_rate {rate}\n", ZERO + n)
        for n, rate in enumerate((0.5, 10.6, 0.5))
    ]
    assert server_account(Scraped("u", rows), [])[0].hit_rate is None
    rows = [
        reading(f"sglang:num_running_reqs 1\nsglang:cache_hit_rate {rate}\n", ZERO + n)
        for n, rate in enumerate((0.0, 0.4, 0.0))
    ]
    assert server_account(Scraped("u", rows), [])[0].hit_rate == pytest.approx(0.4)


def test_the_clients_ttft_is_compared_with_the_servers():
    assert account(outside_ms=8.0)[1] == []
    server, notes = account(outside_ms=400.0)
    assert server.client_ttft_ms == pytest.approx(server.ttft.mean + 400)
    assert "1,000 ms at the client, 600 ms by the server; 400 ms pass outside" in notes[0]
    assert "more than the client saw" in account(outside_ms=-300.0)[1][0]


def test_requests_of_others_are_named():
    _, notes = account(served=60)
    assert "the server finished 60 requests during the run, the client sent 40" in notes[0]


def test_a_server_that_restarted_has_no_account():
    metrics = run(Engine(), FULL)
    metrics.readings.append(read(Engine(), 40.0))
    server, notes = server_account(metrics, sent())
    assert server is None and "restarted" in notes[0]


def diagnosed(states: list[dict] = FULL, shared: float | None = 0.0, **more) -> Load:
    load = judged(sent(), rate=2.0)
    load.server, _ = account(states, **more)
    diagnose_load(load, shared)
    return load


def causes(load: Load) -> list[str]:
    return [finding.id for finding in load.findings]


def test_a_batch_limit_explains_the_queue():
    load = diagnosed()
    assert causes(load) == ["serving-batch-limit"]
    [finding] = load.findings
    assert finding.at_most and finding.gain_ms == pytest.approx(load.server.queue.mean)
    assert finding.claims == {Entry.QUEUE: finding.gain_ms}
    assert finding.share == pytest.approx(QUEUE.mean() / (QUEUE + PREFILL + DECODE).mean())


def test_a_full_cache_explains_the_queue_and_preemptions_are_evidence():
    states = [{"running": 4 + n % 3, "waiting": 3, "cache": 0.97} for n in range(10)]
    [finding] = diagnosed(states, preemptions=12).findings
    assert finding.id == "serving-kv-cache" and finding.evidence["preemptions"] == 12


@pytest.mark.parametrize(
    ("block", "prompt", "waste", "cause"),
    [
        (
            400,
            90,
            0.75,
            "serving-block-size",
        ),  # in the cache: the prompt, and 5 of 10 tokens; the rest of 400
        (64, 90, 64 / (2 * 95 + 64), "serving-block-size"),
        (16, 90, 16 / (2 * 95 + 16), "serving-kv-cache"),
    ],
)
def test_a_cache_full_of_mostly_empty_blocks_needs_smaller_ones(block, prompt, waste, cause):
    """vLLM makes blocks of hundreds of tokens for models that mix attention with recurrent layers."""
    states = [{"running": 4 + n % 3, "waiting": 3, "cache": 0.97} for n in range(10)]
    engine = Engine()
    metrics = run(engine, states)
    engine.of["prompt"].inc(40 * prompt)
    engine.of["generated"].inc(40 * 10)
    about = f'vllm:cache_config_info{{block_size="{block}",engine="0"}} 1.0\n'
    last = reading(engine.text() + about, ZERO + 31 * S)
    metrics.readings.append(last)
    load = judged(sent(), rate=2.0)
    load.server, _ = server_account(metrics, sent())
    diagnose_load(load, 0.0)
    assert (load.server.block, load.server.tokens_per_request) == (block, prompt + 5)
    assert facts_of_server(load.server, 0.0)["block_waste"] == pytest.approx(waste, abs=0.02)
    assert causes(load) == [cause]


def test_capacity_is_named_only_if_no_limit_can_explain_the_queue():
    states = [{"running": 4 + n % 5, "waiting": 3, "cache": 0.3} for n in range(15)]
    assert causes(diagnosed(states)) == ["serving-queue"]
    load = diagnosed([{"running": 4 + n % 5, "waiting": 3} for n in range(3)])
    assert causes(load) == []
    left = {row.what: row.why for row in load.abstained}
    assert "may explain it" not in left.get("serving-batch-limit", "")
    assert any("serving-queue" in what for what in left)


def test_an_unused_prefix_cache_is_seen_from_the_prompts_that_were_sent():
    shared = shared_share(Workload(requests=40, words=200, shared=150))
    assert shared == pytest.approx(0.75 * 39 / 40)
    load = diagnosed([{"running": 4, "waiting": 0, "cache": 0.1}] * 10, shared)
    [finding] = load.findings
    assert finding.id == "serving-prefix-cache" and finding.gain_ms == pytest.approx(100 * shared)
    assert causes(diagnosed([{"running": 4, "waiting": 0, "cache": 0.1}] * 10, shared, hits=0.7)) == []
    assert causes(diagnosed([{"running": 4, "waiting": 0, "cache": 0.1}] * 10, None)) == []
    assert shared_share(Workload(turns=3)) is None
    assert shared_share(Workload(pattern="replay", trace=Path("trace.jsonl"))) is None


def test_preemptions_of_unknown_length_leave_the_finding_open():
    states = [{"running": 4, "waiting": 1, "cache": 0.97}] * 10
    load = judged(sent(), rate=2.0)
    metrics = run(Engine(), states, preemptions=5)
    for name in ("first", "last"):
        of = metrics.readings[0 if name == "first" else -1].histograms["queue"]
        of.sum = 0.0
    load.server, _ = server_account(metrics, sent())
    diagnose_load(load, 0.0)
    assert load.findings == []
    assert {row.what: row.why for row in load.abstained}["serving-kv-cache"].endswith("kept out share")


def test_too_few_requests_have_no_findings():
    load = diagnosed(served=5)
    assert load.findings == [] and "fewer than 8" in load.abstained[0].why


def printed(load: Load | Sweep) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    print_load(load, console)
    return console.file.getvalue()


def test_the_report_shows_the_server_beside_the_client():
    load = judged(sent(400.0), rate=2.0)
    load.server, notes = account(outside_ms=400.0, hits=0.25, preemptions=1)
    load.notes += notes
    diagnose_load(load, 0.0)
    text = printed(load)
    assert "queue            300–500     800–1,000      500.0             40 requests" in text
    assert "ttft             500–800     800–1,000      600.0    1,000.0  40 requests" in text
    text = " ".join(text.split())
    assert "25 % of prompt tokens cached · 1 preemption" in text and "KV cache at most 20 % full" in text
    assert "saves at most 500 ms, 50 %" in text and "pass outside" in text
    assert "server ms" not in printed(judged(sent(), rate=2.0))


def test_a_sweep_shows_the_servers_queue():
    loads = [judged(sent(), rate=rate) for rate in (1.0, 2.0)]
    loads[1].server, _ = account()
    loads[0].notes.append("the server's metrics were not read: u: it answers with status 404")
    text = printed(frontier(loads))
    assert "srv queue" in text and "500 ms" in text and text.count("were not read") == 1
    assert "srv queue" not in printed(frontier(loads[:1]))


def test_a_sweep_begins_with_its_knee_and_ends_with_the_reasons_of_refusals():
    loads = [judged(sent(), rate=rate) for rate in (1.0, 2.0)]
    loads[1].refusals.append(Refusal("client-late", "the client was late"))
    text = printed(frontier(loads))
    assert text.startswith("No knee")
    assert text.rstrip().endswith("2/s: client-late: the client was late.")


def drafting(engine: str, drafted: int, accepted: int) -> Load:
    """A load test of a server with speculative decoding, which drafted for others before."""
    made = Engine(engine)
    for name, count in (("drafted", 9000), ("accepted", 9000)):
        if name in made.of:
            made.of[name].inc(count)
    metrics = run(made, FULL)
    if engine == "sglang":
        made.of["accept_rate"].set(accepted / drafted)
    else:
        made.of["drafted"].inc(drafted)
        made.of["accepted"].inc(accepted)
    metrics.readings.append(read(made, 15.0))
    metrics.readings.append(read(made, 31.0))
    server, _ = server_account(metrics, sent())
    load = judged(sent(), rate=2.0)
    load.server = server
    diagnose_load(load, 0.0)
    return load


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_few_accepted_drafts_are_reported_with_the_cost_at_which_they_pay(engine):
    load = drafting(engine, drafted=1000, accepted=120)
    assert load.server.accepted == pytest.approx(0.12)
    assert "12 % of drafted tokens accepted" in printed(load)
    left = {row.what: row.why for row in load.abstained}
    assert "less than 12 % of a decode" in left["serving-low-acceptance"]
    assert "serving-low-acceptance" not in [finding.id for finding in load.findings]


def test_many_accepted_drafts_or_none_leave_nothing_open():
    for load in (drafting("vllm", drafted=1000, accepted=700), drafting("vllm", drafted=0, accepted=0)):
        assert not [row for row in load.abstained if "serving-low-acceptance" in row.what]
    assert load.server.accepted is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (404, "it answers with status 404"),
        ("vllm:num_requests_running{model_name= 3\n", "its answer is not in Prometheus' text format"),
        (
            'vllm:e2e_bucket{engine="0",le="0.5", =odel="m"} 0.0\n',
            "its answer is not in Prometheus' text format",
        ),
        ("python_info 1\n", "it has no metrics of vLLM or SGLang"),
        ("", "it has no metrics of vLLM or SGLang"),
    ],
)
def test_a_server_without_metrics_gets_one_line(answer, why):
    with serving(lambda: answer) as url, scraped(url) as metrics:
        pass
    server, notes = server_account(metrics, sent())
    assert server is None and notes == [f"the server's metrics were not read: {url}/metrics: {why}"]


def test_no_server_and_no_address_of_http():
    with scraped("http://127.0.0.1:9") as metrics:
        pass
    assert metrics.readings == [] and "refused" in metrics.why
    with pytest.raises(UnreadableError):
        scrape("file:///etc/passwd")


def test_metrics_are_read_before_during_and_after(monkeypatch):
    engine = Engine()
    with serving(engine.text) as url, scraped(url, every_s=0.02) as metrics:
        engine.finish(ttft=0.2, queue=0.1, e2e=0.5)
        while len(metrics.readings) < 4:
            pass
        engine.of["preemptions"].inc()
    server, _ = server_account(metrics, [])
    assert server.finished == 1 and server.preemptions == 1 and len(server.states) >= 3


def test_the_command_reports_the_server_and_says_if_it_cannot(monkeypatch):
    engine = Engine()

    def drive(*_):
        for queue in QUEUE:
            engine.finish(ttft=queue + PREFILL, queue=queue, prefill=PREFILL, e2e=queue + PREFILL + DECODE)
        return sent(), 0.1

    monkeypatch.setattr("fathom.load.drive", drive, raising=False)
    monkeypatch.setattr("fathom.load.require_answer", lambda *_: None, raising=False)
    with serving(engine.text) as url:
        shown = invoke("load", url, "--model", "m", "--rate", "2", "--warmup", "0", "--json")
        load = json.loads(shown.stdout)
    assert load["server"]["engine"] == "vLLM" and load["server"]["queue"]["n"] == 40
    assert load["server"]["queue"]["mean"] == pytest.approx(500)
    with serving(lambda: 404) as url:
        shown = invoke("load", url, "--model", "m", "--rate", "2", "--warmup", "0")
    assert shown.output.count("metrics") == 2 and "server ms" not in shown.output
