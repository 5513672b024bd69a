"""Findings on requests: the model of an engine by hand, and each rule on facts that must raise it or not."""

from __future__ import annotations

import tarfile
from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from benchmarks.serving.faults import ENGINES
from benchmarks.serving.speculating import FINDING
from fathom.analysis.serving import (
    Entry,
    IterationKind,
    Percentiles,
    RequestEntry,
    Serving,
    requests_account,
)
from fathom.diagnosis.kinds.catalogue import OF_REQUESTS, kinds
from fathom.diagnosis.serving import findings as module
from fathom.diagnosis.serving.engine import (
    Asked,
    Batch,
    Engine,
    engine_of,
    iterations_of,
    mean_ms,
    replayed,
    shared,
)
from fathom.diagnosis.serving.facts import block_waste
from fathom.diagnosis.serving.findings import decode_floor, rules, serving_abstained, serving_findings
from fathom.diagnosis.serving.replay import Change, Replay, Spans
from fathom.machine import Ceiling
from fathom.report import Recording, units
from fathom.report import serving as report
from fathom.report.page.page import page
from tests.analysis.test_serving import iteration, request, tables, turn
from tests.report.test_report import gpu, text
from tests.support.paths import DATA

MS = 1_000_000
NOTHING = dict.fromkeys((name for rule in rules() for name in rule.when), 0.0)
SOUND = {"busy": 0.5, "kv_free": 0.8, "longest_over_decode": 1.0}


def test_one_request_alone_by_hand():
    """12 tokens in chunks of 5: three prefills (2 + 5, 2 + 5, 2 + 2), then two decodes of 2 + 3."""
    engine = Engine(fixed=2, token=1, decode=3, limit=4, budget=5)
    assert mean_ms(engine, [Asked(0, 12, 3)]) == pytest.approx(7 + 7 + 4 + 5 + 5)


def test_a_limit_of_one_serves_one_after_the_other_by_hand():
    """Each takes 2 + 4 and one decode of 2 + 1. With a limit of 1, the second waits for the first."""
    asked = [Asked(0, 4, 2), Asked(0, 4, 2)]
    alone = Engine(fixed=2, token=1, decode=1, limit=1, budget=100)
    assert mean_ms(alone, asked) == pytest.approx((9 + 18) / 2)
    batched = Engine(fixed=2, token=1, decode=1, limit=2, budget=100)
    assert mean_ms(batched, asked) == pytest.approx(2 + 8 + 2 + 2)


def test_a_cache_without_room_preempts_the_last_request_by_hand():
    """Two prompts of 2 tokens take a block of 2 each; four tokens are generated, one an iteration of 1 ms.

    In the second iteration the first request takes the third block, and the second one leaves. It returns for
    3 tokens, which take 2 blocks, when the first has ended: after 4 ms. It generates three more until 7 ms.
    """
    asked = [Asked(0, 2, 4), Asked(0, 2, 4)]
    roomy = Engine(fixed=1, token=0, decode=0, limit=9, budget=100)
    assert replayed(roomy, asked) == [4, 4]
    assert replayed(replace(roomy, blocks=3, block=2), asked) == [4, 7]
    again = replace(roomy, blocks=3, block=2, token=1)
    assert replayed(again, asked) == [4 + 4, 7 + 4 + 3]
    assert replayed(replace(again, again=1), asked) == [4 + 4, 7 + 4 + 1]


@pytest.fixture
def full_cache(tmp_path) -> dict[str, pl.DataFrame]:
    """Return the tables of `vllm serve` with a cache that was too small."""
    with tarfile.open(DATA / "serving" / "vllm-cache.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return {file.stem: pl.read_parquet(file) for file in tmp_path.glob("*.parquet")}


def test_the_replay_of_a_small_cache_agrees_with_vllm(full_cache, monkeypatch):
    """The scheduler was vLLM's: the replay has about its preemptions, iterations and batches."""
    replay, calls = Replay(full_cache), Counter()
    preempt, generate = Batch._preempt, Batch.generate
    monkeypatch.setattr(Batch, "_preempt", lambda *of: calls.update(["preempted"]) or preempt(*of))
    monkeypatch.setattr(Batch, "generate", lambda *of: calls.update(["iterations"]) or generate(*of))
    assert replay.mean(Change(), replay.engine) == pytest.approx(replay.seen, rel=0.1)
    recorded = full_cache["request_spans"].filter(what="preempt").height
    assert calls["preempted"] == pytest.approx(recorded, rel=0.15)
    assert calls["iterations"] == pytest.approx(full_cache["iterations"].height, rel=0.1)
    calls.clear()
    roomy = replay.mean(Change(), replace(replay.engine, blocks=10_000, limit=96))
    assert not calls["preempted"] and calls["iterations"] < full_cache["iterations"].height / 2
    assert roomy < replay.seen


def test_a_report_of_a_server_opens_with_what_lengthens_requests(full_cache):
    account = requests_account(full_cache)
    account.findings = serving_findings(account, full_cache)
    shown = text(gpu(serving=account, findings=[], abstained=[]))
    opening = " ".join(shown.split("requests in")[0].split())
    assert "The KV cache is too small for the load. Give the KV cache more blocks" in opening
    assert "% of the mean request." in opening
    assert "No known cause of lost time was found in the steps" in shown
    account.findings = []
    assert "mean request." not in text(gpu(serving=account))


def test_a_page_of_a_server_shows_the_figures_of_its_requests(full_cache):
    account = requests_account(full_cache)
    shown = page(Recording(gpu(serving=account))).split("<nav")[0]
    assert f">{units.duration(account.e2e_ms.p50)}<" in shown and "median end to end" in shown
    assert "clean step<" in page(Recording(gpu())) and "clean step<" not in shown


def test_a_request_larger_than_the_cache_is_served_alone():
    small = Engine(fixed=1, token=0, decode=0, limit=9, budget=100, blocks=1, block=2)
    assert replayed(small, [Asked(0, 4, 3), Asked(0, 4, 3)]) == [3, 6]


def one_by_one(n: int = 10, decodes: int = 4):
    """An engine with a limit of one: prefills of 10 ms for 10 tokens, decodes of 5 ms, all asked at once."""
    at, rows, turns, requests = 0, [], [], []
    for number in range(n):
        for step in range(decodes):
            length = (10 if step == 0 else 5) * MS
            kind, tokens = ("prefill", 10) if step == 0 else ("decode", 1)
            row = {**iteration(len(rows), kind, at, at, at + length, at + length), "waiting": n - number - 1}
            rows.append({**row, "kv_used": 1, "kv_total": 100})
            turns.append(turn(len(rows) - 1, number, kind, tokens))
            at += length
        requests.append(request(number, 0, 0, at, generated=decodes, repeated=0))
    return tables(requests=requests, iterations=rows, turns=turns)


def test_the_model_is_fitted_to_the_iterations():
    engine = engine_of(iterations_of(one_by_one()))
    assert engine.limit == 1 and engine.budget == 10
    assert engine.took(10, 0) == pytest.approx(10, rel=0.01) and engine.took(0, 1) == pytest.approx(
        5, rel=0.01
    )


def test_batching_saves_at_least_nothing_and_at_most_as_if_decodes_were_free():
    """If ten decodes cost what one costs, prompts share the fixed 5 ms (55 ms), then 3 decodes (15 ms)."""
    gain, low, high = Replay(one_by_one()).saves(Change(limit=True))
    recorded = sum(25 * (k + 1) for k in range(10)) / 10
    assert low <= recorded - 115 <= high and high >= recorded - 70
    assert low <= gain <= high


def mixed_lengths(part: float, scatter: float = 0.0, slower: float = 1.0, n: int = 30):
    """One request after the other: decodes of 5 ms, of which a batch shares `part`; 0.1 ms a prompt token.

    The second half is `slower`.
    """
    draw, at, rows, turns, requests = np.random.default_rng(7), 0, [], [], []
    for number in range(n):
        prompt = 10 + 10 * (number % 4)
        for step in range(4):
            took = (5 if step else 5 * part + 0.1 * prompt) * (slower if number >= n // 2 else 1.0)
            length = round(took * MS * draw.uniform(1 - scatter, 1 + scatter))
            row = iteration(len(rows), "decode" if step else "prefill", at, at, at + length, at + length)
            rows.append({**row, "waiting": n - number - 1, "kv_used": 1, "kv_total": 100})
            turns.append(turn(len(rows) - 1, number, row["kind"], 1 if step else prompt))
            at += length
        requests.append(request(number, 0, 0, at, generated=4, repeated=0, prompt=prompt))
    return tables(requests=requests, iterations=rows, turns=turns)


@pytest.mark.parametrize("part", [0.0, 0.4, 0.8])
def test_prompts_of_different_lengths_show_how_much_of_a_decode_a_batch_shares(part):
    assert shared(iterations_of(mixed_lengths(part))) == pytest.approx(part, abs=0.01)
    scattered = shared(iterations_of(mixed_lengths(part, scatter=0.2)))
    assert part - 0.4 < scattered <= part + 0.05


def test_prompts_of_one_length_do_not_show_what_a_batch_shares():
    assert shared(iterations_of(one_by_one(n=30))) == 0.0


def test_a_machine_that_drifts_does_not_turn_a_gain_into_a_loss():
    """Its second half is three times slower: so would be the run without the limit."""
    replay = Replay(mixed_lengths(0.8, slower=3.0))
    gain, low, high = replay.saves(Change(limit=True))
    assert 0 < low <= gain <= high <= replay.seen


def drafting(accepted: int, n: int = 10, plain: bool = True, took: float = 8.0):
    """One request after the other: a prefill of 5 ms, then decodes for 12 tokens.

    A decode without drafts takes 5 ms; one that verifies 4 drafted tokens takes 8 ms. They alternate.
    """
    at, rows, turns, requests = 0.0, [], [], []

    def ran(number: int, kind: str, tokens: int, length: float, made: int) -> None:
        nonlocal at
        times = (round(time * MS) for time in (at, at, at + length, at + length))
        rows.append({**iteration(len(rows), kind, *times), "waiting": 0, "kv_used": 1, "kv_total": 9})
        turns.append(turn(len(rows) - 1, number, kind, tokens, made))
        at += length

    for number in range(n):
        start, left = at, 11
        ran(number, "prefill", 10, 5.0, 1)
        while left:
            drafts = not plain or len(rows) % 2 == 0
            made = min(1 + accepted * drafts, left)
            ran(number, "decode", 1 + 4 * drafts, took if drafts else 5.0, made)
            left -= made
        times = (round(time * MS) for time in (start, start, at))
        requests.append(request(number, *times, generated=12, repeated=0))
    return tables(requests=requests, iterations=rows, turns=turns)


def test_drafts_that_are_rejected_are_named_by_hand():
    """Five of a request's decodes take 8 ms instead of 5, for one token all the same."""
    (finding,) = module_findings(drafting(accepted=0))
    assert finding.id == FINDING
    assert finding.evidence == {"rejected share": 1.0, "draft slowdown": pytest.approx(1.6)}
    assert finding.gain_ms == pytest.approx(5 * 3)
    account = requests_account(drafting(accepted=1))
    assert (account.drafted_tokens, account.accepted_tokens) == (160, 39)
    assert "24 % of drafted tokens accepted" in list(report.facts(account))


@pytest.mark.parametrize(("accepted", "took"), [(4, 8.0), (1, 8.0), (0, 5.1)])
def test_drafts_that_pay_or_cost_little_are_no_finding(accepted, took):
    assert module_findings(drafting(accepted, took=took)) == []


def test_the_replay_of_drafts_agrees_with_what_was_recorded():
    """With all four accepted, a request decodes in fewer iterations than it has tokens."""
    replay = Replay(drafting(accepted=4))
    assert replay.mean(Change(), replay.engine) == pytest.approx(replay.seen, rel=0.05)
    assert replay.saves(Change(plain=True))[0] == 0.0


def test_drafts_without_plain_decodes_are_not_judged():
    """In six decodes, each with four drafted tokens, one is accepted; the last decode needs none."""
    frames = drafting(accepted=1, plain=False)
    account = requests_account(frames)
    (open_one,) = serving_abstained(account, frames)
    assert serving_findings(account, frames) == [] and open_one.what == FINDING
    assert "less than 21 % of a decode without drafts" in open_one.why
    assert serving_abstained(account, drafting(accepted=0)) == []
    assert serving_abstained(account, drafting(accepted=4, plain=False)) == []


def tokenised(*spans: tuple[int, int]):
    """Two requests arrive at 0 ms; the event loop tokenises one after the other; each is read in 5 ms."""
    rows = [
        iteration(n, "prefill", at * MS, at * MS, (at + 5) * MS, (at + 5) * MS)
        for n, at in enumerate((10, 20))
    ]
    return tables(
        requests=[
            request(0, 0, 10 * MS, 15 * MS, repeated=0),
            request(1, 0, 20 * MS, 25 * MS, repeated=0),
        ],
        request_spans=[
            {"request": n, "what": "tokenise", "start_ns": low * MS, "end_ns": high * MS}
            for n, (low, high) in enumerate(spans)
        ],
        iterations=rows,
        turns=[turn(0, 0, "prefill", 10), turn(1, 1, "prefill", 10)],
    )


def test_without_the_tokenizer_requests_reach_the_engine_earlier_by_hand():
    """Recorded: 15 and 25 ms. Without tokenising, both wait for the engine alone: 5 and 10 ms.

    If tokenising held the interpreter, it lengthened the first iteration too, by all of its 5 ms.
    """
    gain, low, high = Replay(tokenised((0, 10), (10, 20))).saves(Change(spans="tokenise"))
    assert 12.5 <= gain <= 16.25 and low <= 12.5 <= high


def slow_clients(*waits: int):
    """Requests that wait for their clients for so many milliseconds after the engine."""
    frames = one_by_one(n=len(waits))
    frames["requests"] = frames["requests"].with_columns(end_ns=pl.col("end_ns") + pl.Series(waits) * MS)
    spans = [
        {"request": n, "what": "send", "start_ns": end - wait * MS, "end_ns": end}
        for n, wait, end in zip(range(len(waits)), waits, frames["requests"]["end_ns"], strict=True)
    ]
    return frames | {"request_spans": pl.DataFrame(spans)}


def test_other_requests_wait_for_their_clients_as_differently_as_these():
    """Beside what the engine's speed adds to the interval, two runs of 16 requests differ by chance."""
    (same, *ends), (gain, low, high) = (
        Replay(slow_clients(*waits)).saves(Change(spans="send")) for waits in ([20] * 16, [0, 40] * 8)
    )
    drawn = np.random.default_rng(3).choice([0, 40], (2, 20_000, 16)).mean(axis=2)
    chance = float(np.quantile(np.abs(drawn[0] - drawn[1]), 0.95))
    assert same == pytest.approx(20) and gain == pytest.approx(20)
    assert gain - low == pytest.approx(np.hypot(same - ends[0], chance), rel=0.1)
    assert high - gain == pytest.approx(np.hypot(ends[1] - same, chance), rel=0.1)


def test_interrupted_iterations_do_not_hide_what_a_further_decode_costs():
    """Decodes take 2 ms and 0.5 ms per request; each third one takes 20 ms longer, another program's time."""
    rows = iterations_of(batched((1, 2, 3, 4) * 12, 0.5, full=False))
    late = pl.when(pl.col("iteration") % 3 == 0).then(20 * MS).otherwise(0)
    shift = late.cum_sum().shift(1, fill_value=0)
    times = [pl.col(name) + shift for name in ("start_ns", "prepared_ns")]
    rows = rows.with_columns(
        *times, *(pl.col(n) + shift + late for n in ("computed_ns", "sampled_ns", "end_ns"))
    )
    engine = engine_of(rows)
    assert engine.decode / engine.took(0, 1) == pytest.approx(0.5 / 2.5, rel=0.02)
    assert sum(engine.took(0, n) for n in (1, 2, 3, 4)) * 12 == pytest.approx((2 * 4 + 5) * 12 + 16 * 20)


def test_a_change_that_changes_nothing_saves_nothing():
    assert Replay(tokenised((0, 10), (10, 20))).saves(Change(spans="send"))[0] == pytest.approx(0.0)
    assert Replay(one_by_one()).saves(Change(repeated=1))[0] == pytest.approx(0.0)


def test_an_engine_for_each_request_leaves_no_queue_by_hand():
    """Each would take 10 + 3 · 5 ms alone, where the recording had a mean of 137.5 ms."""
    _, low, high = Replay(one_by_one()).saves(Change(engines=True))
    assert low < 137.5 - 25 <= high


def test_spans_within_a_time_are_their_union():
    spans = Spans(tokenised((2, 6), (4, 9)), "tokenise")
    low, high = np.array([0.0, 3.0, 5.0, 9.0]), np.array([20.0, 5.0, 5.0, 12.0])
    assert spans.within(low, high).tolist() == [7.0, 2.0, 0.0, 0.0]
    assert Spans(tokenised(), "tokenise").within(low, high).tolist() == [0.0] * 4


def test_the_batch_limit_is_named():
    frames = one_by_one()
    result = module_findings(frames)
    assert result[0].id == "serving-batch-limit"
    assert result[0].low_ms < result[0].gain_ms < result[0].high_ms <= 137.5


def module_findings(frames):
    return serving_findings(requests_account(frames), frames)


def test_a_full_cache_is_named_and_not_the_limit_that_it_sets():
    frames = one_by_one()
    frames["iterations"] = frames["iterations"].with_columns(kv_used=pl.lit(95))
    assert [finding.id for finding in module_findings(frames)] == ["serving-kv-cache"]


def test_blocks_that_are_mostly_empty_are_named_before_the_size_of_the_cache():
    """A request of 10 to 13 tokens takes a block of 32, and one is in the engine at a time."""
    frames = one_by_one()
    frames["iterations"] = frames["iterations"].with_columns(kv_used=1, kv_total=1, kv_block=32)
    (finding,) = module_findings(frames)
    assert finding.id == "serving-block-size"
    filled_tokens = 9 * (10 + 11 + 12 + 13)  # of the nine requests behind which others wait
    assert finding.evidence["block waste"] == pytest.approx(1 - filled_tokens / (9 * 4 * 32))
    filled = frames | {"iterations": frames["iterations"].with_columns(kv_used=7, kv_total=7, kv_block=2)}
    assert [finding.id for finding in module_findings(filled)] == ["serving-kv-cache"]


def test_only_the_last_block_of_a_request_is_partly_empty():
    frames = one_by_one()
    full = pl.lit(3), pl.lit(4), pl.lit(5)
    used, total, block = (
        of.alias(name) for of, name in zip(full, ("kv_used", "kv_total", "kv_block"), strict=True)
    )
    frames["iterations"] = frames["iterations"].with_columns(used, total, block)
    empty = 0 + 4 + 3 + 2  # behind 10, 11, 12 and 13 tokens
    assert block_waste(frames) == pytest.approx(empty / (4 * 3 * 5))
    frames["iterations"] = frames["iterations"].with_columns(kv_block=None)
    assert block_waste(frames) == 0.0


def test_few_requests_show_nothing():
    assert module_findings(one_by_one(n=7)) == []


def serving(**shares: float) -> Serving:
    """An account whose mean request takes 100 ms, split by the shares of entries."""
    rows = [
        RequestEntry(Entry[name].value, 100 * share, share, 100 * share, None, 100 * share, 0.0)
        for name, share in shares.items()
    ]
    e2e = Percentiles(50, 100.0, 100.0, 100.0, None, 100.0)
    counts = {"prompt_tokens": 1, "cached_tokens": 0, "generated_tokens": 1, "recomputed_tokens": 0}
    rest = {"preemptions": 0, "waiting_max": 0, "kv_peak": 0.2}
    empty = {"ttft_ms": None, "tpot_ms": None, "iterations": [], "slowest": []}
    head = {"requests": 50, "failed": 0, "seconds": 1.0, "tokens_per_s": 1.0, "requests_per_s": 1.0}
    return Serving(**head, busy=0.5, e2e_ms=e2e, ledger=rows, **empty, **counts, **rest)


RAISED = {
    "serving-tokenizer": ({"tokenise_share": 0.3, "tokenise_ms_per_1000": 400}, {"TOKENISE": 0.3}),
    "serving-detokeniser": ({"detokenise_ms_per_token": 4}, {"DELIVER": 0.2}),
    "serving-client": ({"stream_share": 0.4}, {"STREAM": 0.4}),
    "serving-prefill-blocks-decode": (
        {"blocked_share": 0.4, "longest_over_decode": 6},
        {"DECODE_OTHERS": 0.4},
    ),
    "serving-queue": ({"queue_share": 0.6, "busy": 0.98}, {"QUEUE": 0.6}),
    "serving-low-acceptance": ({"rejected_share": 0.9, "draft_slowdown": 1.5}, {"DECODE": 0.8}),
}


@pytest.mark.parametrize("kind", RAISED)
def test_a_rule_is_raised_by_its_facts_and_by_no_other(kind, monkeypatch):
    facts, shares = RAISED[kind]
    account, frames = serving(**shares), one_by_one()
    monkeypatch.setattr(module.Replay, "saves", lambda *_: (30.0, 20.0, 40.0))
    given = {**NOTHING, **SOUND, **facts}
    monkeypatch.setattr(module, "facts_of", lambda *_: given)
    (finding,) = serving_findings(account, frames)
    assert finding.id == kind
    assert 0 <= finding.low_ms <= finding.gain_ms <= finding.high_ms <= 100.0
    assert set(finding.evidence) == {name.replace("_", " ") for name in rule_of(kind).when}
    for name in rule_of(kind).when:
        given = {**NOTHING, **SOUND, **facts, name: 0.0}
        assert serving_findings(account, frames) == []


def rule_of(kind: str):
    return next(rule for rule in rules() if rule.id == kind)


def test_a_queue_is_not_blamed_on_capacity_if_a_limit_causes_it(monkeypatch):
    facts = {"queue_share": 0.6, "busy": 0.98, "at_limit_share": 1.0, "kv_free": 0.9}
    monkeypatch.setattr(module, "facts_of", lambda *_: {**NOTHING, **facts})
    names = [finding.id for finding in serving_findings(serving(QUEUE=0.6), one_by_one())]
    assert names == ["serving-batch-limit"]


def test_the_floor_of_a_decode_by_hand():
    """200 MB at 20 GB/s take 10 ms; a decode of 2 requests took 40 ms."""
    account = serving(QUEUE=1.0)
    account.iterations = [IterationKind("decode", 5, 1.0, 40.0, 2.0, 2.0)]
    ceilings = [Ceiling(id="host.read", value=20e9, unit="B/s", low=20e9, high=20e9, samples=3)]
    floor = decode_floor(account, 200_000_000, ceilings)
    assert (floor.ms, floor.share, floor.tokens_per_s) == pytest.approx((10.0, 0.25, 200.0))
    assert decode_floor(account, None, ceilings) is None and decode_floor(account, 1, []) is None


def test_every_kind_on_requests_is_described_has_a_rule_and_is_planted():
    described = {name: kind for name, kind in kinds().items() if kind.group == OF_REQUESTS}
    assert list(described) == [rule.id for rule in rules()]
    capacity = {"serving-queue"}  # a load, and no fault of a server
    planted = {of.finding for _, faults in ENGINES.values() for of in faults.values()}
    assert planted | {FINDING} | capacity == set(described)
    for kind in described.values():
        assert all((kind.title, kind.action, kind.mechanism, kind.shows, kind.remedy))
        assert kind.references and not kind.action.endswith(".") and not kind.bound


def test_every_rule_is_complete():
    entries = {entry.value for entry in Entry}
    for rule in rules():
        assert rule.claims
        assert set(rule.claims) <= entries
        assert rule.change != Change()


def batched(sizes: tuple[int, ...], each: float, full: bool, at: int = 0):
    """Iterations that decode for so many requests each, in 2 ms and `each` per request, while others wait."""
    rows, turns = [], []
    for size in sizes:
        length = round((2 + each * size) * MS)
        row = iteration(len(rows), "decode", at, at, at + length, at + length)
        rows.append({**row, "waiting": 3, "kv_used": 90 if full else 10, "kv_total": 100})
        turns += [turn(len(rows) - 1, number, "decode", 1) for number in range(size)]
        at += length
    requests = [request(number, 0, 0, at, generated=len(sizes), repeated=0) for number in range(max(sizes))]
    return tables(requests=requests, iterations=rows, turns=turns)


def test_a_full_cache_limits_batches_to_their_usual_size_and_a_limit_to_the_largest():
    sizes = (5, 3, 4, 3, 4, 3, 4, 3)
    assert engine_of(iterations_of(batched(sizes, 0.5, full=True))).limit == 4
    assert engine_of(iterations_of(batched(sizes, 0.5, full=False))).limit == 5


def test_more_requests_per_batch_cost_what_a_further_one_cost_in_the_recording():
    """Batches of 1 to 4 show the 2 ms that all share; alike batches leave open whether there are any."""
    spread = Replay(batched((1, 2, 3, 4) * 4, 0.5, full=True))._engines(Change(limit=True))
    assert {round(engine.took(0, 20), 6) for engine in spread} == {2 + 0.5 * 20}
    alike = Replay(batched((3,) * 16, 0.5, full=True))._engines(Change(limit=True))
    assert max(engine.took(0, 30) for engine in alike) == pytest.approx(35.0)


def test_the_rest_of_a_shared_prompt_costs_its_tokens_or_what_a_decode_does():
    """Of a decode of 5 ms, a prompt without tokens shares nothing here; with the next tokens it might."""
    engines = Replay(mixed_lengths(0.0))._engines(Change(repeated=1))
    assert [engine.took(0, 1) for engine in engines] == pytest.approx([5.0, 5.0])
    assert [engine.took(0, 0) for engine in engines] == pytest.approx([0.0, 5.0], abs=1e-6)
