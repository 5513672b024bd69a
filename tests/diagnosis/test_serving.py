"""Findings on requests: the model of an engine by hand, and each rule on facts that must raise it or not."""

from __future__ import annotations

import polars as pl
import pytest

from benchmarks.serving.faults import PLANTED
from fathom.analysis.serving import Entry, Percentiles, RequestEntry, Serving
from fathom.diagnosis.kinds.catalogue import OF_REQUESTS, kinds
from fathom.diagnosis.serving import findings as module
from fathom.diagnosis.serving.engine import Asked, Engine, engine_of, mean_ms, saved
from fathom.diagnosis.serving.findings import rules, serving_findings
from tests.analysis.test_serving import iteration, request, tables, turn

MS = 1_000_000
NAMES = ("tokenise_ms", "detokenise_ms", "concurrency", "uneven")
NOTHING = dict.fromkeys((*NAMES, *(name for rule in rules() for name in rule.when)), 0.0)
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
    engine = engine_of(one_by_one())
    assert engine.limit == 1 and engine.budget == 10
    assert engine.fixed + 10 * engine.token == pytest.approx(10, rel=0.01)
    assert engine.fixed + engine.decode == pytest.approx(5, rel=0.01)


def test_batching_saves_at_least_nothing_and_at_most_as_if_decodes_were_free():
    """If ten decodes cost what one costs, all prompts are read first (100 ms), then 3 decodes (15 ms)."""
    low, high = saved(one_by_one(), {"limit": None})
    recorded = sum(25 * (k + 1) for k in range(10)) / 10
    assert low <= 1 - 115 / recorded <= high


def test_the_batch_limit_is_named():
    frames = one_by_one()
    result = module_findings(frames)
    assert result[0].id == "serving-batch-limit"
    assert 0 <= result[0].low_ms < result[0].high_ms <= 137.5


def module_findings(frames):
    from fathom.analysis.serving import requests_account

    return serving_findings(requests_account(frames), frames)


def test_a_full_cache_is_named_and_not_the_limit_that_it_sets():
    frames = one_by_one()
    frames["iterations"] = frames["iterations"].with_columns(kv_used=pl.lit(95))
    assert [finding.id for finding in module_findings(frames)] == ["serving-kv-cache"]


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
    "serving-tokenizer": (
        {"tokenise_share": 0.3, "tokenise_ms_per_1000": 400, "tokenise_ms": 30},
        {"TOKENISE": 0.3},
    ),
    "serving-detokeniser": ({"detokenise_ms_per_token": 4, "detokenise_ms": 64}, {"DELIVER": 0.2}),
    "serving-client": ({"stream_share": 0.4}, {"STREAM": 0.4}),
    "serving-prefill-blocks-decode": (
        {"blocked_share": 0.4, "longest_over_decode": 6},
        {"DECODE_OTHERS": 0.4},
    ),
    "serving-queue": ({"queue_share": 0.6, "busy": 0.98}, {"QUEUE": 0.6}),
}


@pytest.mark.parametrize("kind", RAISED)
def test_a_rule_is_raised_by_its_facts_and_by_no_other(kind, monkeypatch):
    facts, shares = RAISED[kind]
    account, frames = serving(**shares), tables(iterations=[iteration(0, "decode", 0, 0, 1, 1)])
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


def test_every_kind_on_requests_is_described_has_a_rule_and_is_planted():
    described = {name: kind for name, kind in kinds().items() if kind.group == OF_REQUESTS}
    assert list(described) == [rule.id for rule in rules()]
    assert {planted.finding for planted in PLANTED.values()} == set(described)
    for kind in described.values():
        assert all((kind.title, kind.action, kind.mechanism, kind.shows, kind.remedy))
        assert kind.references and not kind.action.endswith(".") and not kind.bound


def test_every_rule_is_complete():
    entries = {entry.value for entry in Entry}
    for rule in rules():
        assert rule.claims
        assert set(rule.claims) <= entries
        assert rule.gain in ("model", "claims", "tokenise", "detokenise")
        assert (rule.gain == "claims") == (len(rule.shares) == 2)
