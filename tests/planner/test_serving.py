"""Plans of serving: queueing theory, brute force, published runs, and the words of impossible asks."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.plan.calibrate_serving import PER_TYPE
from benchmarks.plan.serving_rows import DATA, read
from fathom.cli.main import app
from fathom.errors import BadInputError
from fathom.planner.buying import advise, compare_sides, side_of, training_account, training_side
from fathom.planner.hardware import hardware
from fathom.planner.serving import (
    Batch,
    Cluster,
    Deployment,
    Fleet,
    Iteration,
    Limits,
    Load,
    Replica,
    ask_serving,
    calibration,
    commands,
    engine,
    explained,
    limited,
    load_test,
    plan_serving,
    resolved,
    serve,
    smallest_pools,
    undominated,
)
from fathom.planner.training import ask, plan_training
from fathom.planner.workload import model

H100 = hardware("h100")
LLAMA = Deployment(model("llama3-8b"), H100, engine("vllm"))
VALUES = calibration().values
ONE_AT_A_TIME = LLAMA.having(max_batch=1)


def served_in(seconds, of=ONE_AT_A_TIME):
    """Return a replica whose every request takes `seconds`: one iteration of prefill, no decode."""
    return Replica(of, lambda batch: seconds)


def test_a_queue_of_constant_service_waits_as_in_md1():
    # Pollaczek-Khinchine for M/D/1: the mean wait is ρ / (2 (1 - ρ)) of a service time.
    service, busy = 0.1, 0.7
    load = Load(prompt=100, output=1, arrival="poisson", rate=busy / service, requests=40_000)
    done = Cluster([served_in(service)]).run(load.drawn(seed=3))
    wait = np.mean([r.ttft for r in done]) - service
    assert wait == pytest.approx(service * busy / (2 * (1 - busy)), rel=0.06)


def test_littles_law_holds_for_every_arrival():
    for arrival in ("poisson", "constant", "bursty"):
        load = Load(500, 100, arrival, rate=5, requests=400)
        served = serve(Fleet(LLAMA), load, VALUES | {"request": 1e-9, "polling": 1e-9})
        in_flight = len(served.end_to_end) / served.seconds * served.end_to_end.mean()
        assert in_flight == pytest.approx(served.end_to_end.sum() / served.seconds)
    closed = serve(
        Fleet(LLAMA), Load(500, 100, "closed", 8, requests=800), VALUES | {"request": 1e-9, "polling": 1e-9}
    )
    assert closed.end_to_end.sum() / closed.seconds == pytest.approx(8, rel=0.02)


def test_jumps_over_equal_iterations_change_nothing():
    load = Load(300, 60, "poisson", rate=20, requests=60, spread=0.5)
    cost = Iteration(LLAMA, resolved(LLAMA, VALUES)).seconds

    class Stepwise(Replica):
        def step(self, horizon=np.inf):
            return super().step(self.clock + 1e-12)

    fast = Cluster([Replica(LLAMA, cost)]).run(load.drawn())
    slow = Cluster([Stepwise(LLAMA, cost)]).run(load.drawn())
    assert [r.prompt for r in fast] == [r.prompt for r in slow]
    # Arrivals near the end of an iteration may meet the next one, so a few differ by an iteration or two.
    late = np.abs(np.array([r.done for r in fast]) - [r.done for r in slow])
    assert np.median(late) < 0.001 and late.max() < 0.05


def test_every_request_ends_and_the_cache_is_never_over_full():
    tight = LLAMA.having(memory_share=0.25)
    replica = Replica(tight, Iteration(tight, resolved(tight, VALUES)).seconds)
    requests = Load(3000, 500, "closed", 64, requests=80, spread=0.3).drawn()
    for request in requests:
        replica.submit(request, 0.0)
    done = []
    while replica.load:
        done += replica.step()
        assert replica.used <= tight.cache_space * 1.02
    assert len(done) == 80 and replica.preempted > 0
    assert replica.used == pytest.approx(0.0, abs=1e6) and not replica.running


def test_a_prompt_in_the_prefix_cache_is_not_computed_again():
    cold, warm = (
        serve(Fleet(LLAMA), Load(8000, 20, "closed", 1, requests=4, hit=hit), VALUES) for hit in (0, 0.9)
    )
    assert warm.ttft.mean() < 0.5 * cold.ttft.mean()


def test_accepted_drafts_shorten_tokens_by_the_geometric_series():
    drafting = LLAMA.having(drafted=3, acceptance=0.8)
    assert drafting.gain == pytest.approx(1 + 0.8 + 0.64 + 0.512)
    load = Load(200, 400, "closed", 1, requests=2)
    ratio = serve(Fleet(LLAMA), load, VALUES).tpot.mean() / serve(Fleet(drafting), load, VALUES).tpot.mean()
    assert 2.5 < ratio < drafting.gain


def test_disaggregation_hands_over_the_cache():
    load = Load(4000, 200, "poisson", rate=4, requests=12)
    combined = serve(Fleet(LLAMA), load, VALUES)
    separated = serve(Fleet(LLAMA, 1, LLAMA, 1), load, VALUES)
    assert separated.gpus == 2 and len(separated.ttft) == 12
    assert separated.tpot.max() <= combined.tpot.max()


def test_least_loaded_routing_beats_turns_under_bursts():
    load, small = Load(500, 300, "bursty", rate=8, requests=150, spread=0.9), LLAMA.having(max_batch=8)

    def slow(routing):  # of several draws: in one, chance may favour either
        return np.mean(
            [
                np.quantile(serve(Fleet(small, 3, routing=routing), load, VALUES, seed).ttft, 0.9)
                for seed in range(6)
            ]
        )

    assert slow("least-loaded") <= slow("round-robin")


def test_experts_are_read_by_coverage():
    of = Deployment(model("mixtral-8x7b"), hardware("h200"), engine("vllm"), tp=2)
    cost = Iteration(of, resolved(of, VALUES))
    read = [cost.parts(Batch(n, 100.0 * n))["experts"] for n in (1, 4, 64)]
    share = [1 - (1 - 2 / 8) ** n for n in (1, 4, 64)]
    assert read[1] / read[0] == pytest.approx(share[1] / share[0], rel=0.02)
    assert read[2] / read[0] == pytest.approx(share[2] / share[0], rel=0.15)


def test_requests_of_one_token_count_by_their_first_token_alone():
    trace = [(0.0, 100, 1), (0.5, 100, 40), (1.0, 100, 40)]
    served = serve(Fleet(LLAMA), Load(trace=trace), VALUES)
    assert len(served.ttft) == 3 and len(served.tpot) == 2 and served.tpot.min() > 0
    assert served.within(tpot=served.tpot.min() / 2) == pytest.approx(1 / 3)
    assert served.within(ttft=served.ttft.max(), tpot=served.tpot.max()) == 1.0


def test_blocks_of_the_cache_match_an_engines_own_count():
    # vLLM prints "GPU KV cache size: ... tokens": 131,072 B per token of Llama 3 8B in bf16
    assert LLAMA.kv_bytes == 131072
    free = 0.9 * LLAMA.memory - LLAMA.parts.stored
    assert LLAMA.blocks * 16 * 131072 == pytest.approx(free, rel=0.05)


def test_trtllm_bench_limits_the_batch():
    deepseek = Deployment(
        model("deepseek-r1"), hardware("gb200"), engine("trtllm-bench"), 1, 4, 4, "fp4", "fp8"
    )
    assert limited(deepseek, 1024, 32768).batch_limit == 64
    assert limited(deepseek, 1000, 1000).batch_limit > 128


@pytest.mark.skipif(not DATA.is_file(), reason="the published rows are not in this checkout")
def test_calibration_uses_at_most_five_rows_of_a_gpu_and_scores_none_of_them():
    rows, reasons = read()
    used = set(calibration().rows)
    assert used <= {row.id for row in rows}
    assert max(Counter(row.chip for row in rows if row.id in used).values()) <= PER_TYPE
    assert all(reasons.values()) and len(rows) + len(reasons) == 115


@pytest.mark.skipif(not DATA.is_file(), reason="the published rows are not in this checkout")
def test_published_latencies_of_rows_that_calibration_did_not_see():
    used = set(calibration().rows)
    errors = [
        abs(row.predict(VALUES)["tpot"] / row.measured["tpot"] - 1)
        for row in read()[0]
        if row.id not in used and "tpot" in row.measured and row.load.requests < 300
    ]
    assert len(errors) > 8 and np.median(errors) < 0.15


def test_the_search_finds_the_fewest_replicas_by_brute_force():
    question = ask_serving(
        "llama3-8b", H100, prompt=1000, output=200, rate=60, ttft="500ms", tpot="15ms", tp=1
    )
    question = replace(question, load=replace(question.load, requests=150))
    plan = plan_serving(question)
    holding = [
        n for n in range(1, plan.replicas + 1)
        if question.limits.met_by(serve(Fleet(LLAMA), _part(question.load, n), VALUES))
    ]  # fmt: skip
    assert plan.replicas == holding[0] > 1
    assert plan.within_limits >= 0.99
    assert f"{plan.kv_blocks:,} blocks" in "\n".join(explained(question, plan))


def _part(load, replicas):
    return replace(load, rate=load.rate / replicas, requests=max(30, -(-load.requests // replicas)))


@pytest.mark.parametrize("arrival", ["poisson", "constant"])
def test_a_fleet_that_meets_limits_makes_the_tokens_that_are_asked_for(arrival):
    # 8 × 1024 tokens/s arrive; a fleet that is fast only at the start does not make them.
    question = ask_serving("llama3-70b", H100, rate=8, arrival=arrival, ttft="1s", tpot="50ms", tp=4)
    plan = plan_serving(question)
    assert plan.figures["output_rate"].value == pytest.approx(8 * 1024, rel=0.1)
    one_fewer = plan.replicas - 1
    long_run = Load(arrival=arrival, rate=8 / one_fewer, requests=4000)
    assert not question.limits.met_by(serve(Fleet(question.candidates[0]), long_run, VALUES))
    assert question.limits.met_by(
        serve(Fleet(question.candidates[0]), replace(long_run, rate=8 / plan.replicas), VALUES)
    )


def test_requests_that_outrun_the_fleet_are_said_to():
    overloaded = plan_serving(ask_serving("llama3-70b", H100, rate=8, tp=4, replicas=1))
    noted = [note for note in overloaded.notes if "queue grows without end" in note]
    rate = overloaded.figures["output_rate"].value
    assert len(noted) == 1 and f"{rate:,.0f} are generated" in noted[0] and rate < 0.8 * 8 * 1024
    few = plan_serving(ask_serving("llama3-70b", H100, rate=8, tp=4, requests=40))
    assert any("40 simulated requests arrive too fast" in note for note in few.notes)
    assert not plan_serving(ask_serving("llama3-70b", H100, rate=0.2, tp=4)).notes


def test_without_a_layout_the_fewest_gpus_that_keep_up_are_planned():
    plan = plan_serving(ask_serving("llama3-70b", H100, rate=8))
    assert not plan.notes and plan.figures["output_rate"].value == pytest.approx(8 * 1024, rel=0.1)
    assert [row.gpus for row in plan.choices] == sorted(row.gpus for row in plan.choices)
    tight = plan_serving(ask_serving("llama3-70b", H100, concurrency=16, tp=2))
    advised = (
        f"The fewest GPUs that keep up are {(plan.gpus)}: --tp {plan.layout.tp} --replicas {plan.replicas}."
    )
    assert advised in plan_serving(ask_serving("llama3-70b", H100, rate=8, tp=2)).notes
    assert any("--tp 4 --replicas 1." in note for note in tight.notes)


def test_gpus_without_limits_make_the_most_tokens():
    question = ask_serving("llama3-70b", H100, concurrency=64, gpus=8)
    plan = plan_serving(question)
    rates = {}
    for of in question.candidates:
        if of.gpus <= 8:
            fleet = Fleet(of, 8 // of.gpus)
            rates[of.tp] = serve(fleet, question.load, VALUES).output_rate
    assert {row.layout.tp for row in plan.choices} == set(rates) and max(r.gpus for r in plan.choices) <= 8
    assert plan.layout.tp == max(rates, key=rates.get)
    trace = tuple((0.2 * i, 1000, 100) for i in range(100))
    traced = replace(ask_serving("llama3-8b", H100, gpus=64), load=Load(trace=trace))
    assert plan_serving(traced).gpus == 1
    few = plan_serving(ask_serving("llama3-8b", H100, rate=1, gpus=64))
    assert few.gpus == 1 and few.choices[0].keeps_up  # one GPU keeps up


def test_as_many_requests_as_clients_are_in_flight():
    plan = plan_serving(ask_serving("llama3-8b", H100, concurrency=300, prompt=100, output=50))
    assert plan.batch == 300


@pytest.mark.parametrize(
    "asked, words",
    [
        ({"rate": 0.0}, "--rate is 0"),
        ({"rate": 4.0, "concurrency": 8}, "--rate and --concurrency each say"),
        ({"concurrency": 64, "requests": 8}, "never are 64 in flight"),
        ({"rate": 1e4, "tpot": "50ms", "tp": 1}, "256 replicas of a layout do not meet"),
    ],
)
def test_arrivals_that_contradict_each_other_are_refused(asked, words):
    with pytest.raises(BadInputError, match=words):
        plan_serving(ask_serving("llama3-8b", H100, **asked))


def test_a_load_test_recalibrates(tmp_path):
    truth = VALUES | {"host": 4 * VALUES["host"]}
    slow = serve(Fleet(LLAMA), Load(256, 128, "closed", 4, requests=16), truth)
    test = load_test(LLAMA, Load(256, 128, "closed", 4))
    for point in test["fill_in"]:
        load = Load(256, 128, "closed", point["concurrency"], requests=4 * point["concurrency"])
        point["tpot_ms"] = 1e3 * float(serve(Fleet(LLAMA), load, truth).tpot.mean())
    path = tmp_path / "test.json"
    path.write_text(json.dumps(test))
    asked = {"prompt": 256, "output": 128, "concurrency": 4, "tp": 1}
    before = plan_serving(ask_serving("llama3-8b", H100, **asked)).figures["tpot"]
    after = plan_serving(ask_serving("llama3-8b", H100, measured=path, **asked)).figures["tpot"]
    assert after.provenance == "measured here"
    assert abs(after.value - slow.tpot.mean()) < 0.3 * abs(before.value - slow.tpot.mean())


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"tpot": "1ms"}, "below the speed of light"),
        ({"tpot": "10us"}, "A limit of 0.01 ms per token is below the speed of light"),
        ({"ttft": "1ms"}, "the nearest has a TTFT of"),
        ({"tp": 3}, "the nearest is tp 2"),
        ({"tp": 1}, "tp 4 fits|tp 2 fits"),
        ({"weights": "fp2"}, "choose one of bf16"),
        ({"engine_name": "vlm"}, "the nearest is vllm"),
        ({"prompt": 8000}, "at most 8,192 tokens, and the longest request 9,024; give --prompt 7168,"),
        ({"prompt": 8000, "spread": 0.1, "output": 8000}, "give --prompt 3723 --output 3723"),
        ({"output": 9000}, "give --output 7168"),
        ({"gpus": 1}, "No layout fits in --gpus 1; the smallest takes 2"),
        ({"gpus": 4, "rate": 8.0, "tpot": "50ms"}, "the smallest that does has 12: --tp 4 --replicas 3"),
        ({"gpus": 4, "replicas": 2}, "leave it out, or --replicas"),
        ({"tpot": "fast"}, "write one like 200ms"),
        ({"max_tokens": 1, "prompt": 7000}, "more than 25,000 iterations to simulate"),
        ({"assume": ["hbm=0 TB/s"]}, "hbm is 0, which no system has"),
        ({"assume": ["hbm=1e300 TB/s"]}, "not a plausible value"),
    ],
)
def test_impossible_asks_are_one_sentence_with_the_nearest_that_works(asked, words):
    with pytest.raises(BadInputError, match=words):
        plan_serving(ask_serving("llama3-70b", H100, **asked))


def test_a_request_longer_than_the_cache_names_the_longest_that_fits():
    with pytest.raises(BadInputError, match="the longest that fits has"):
        plan_serving(ask_serving("llama-4-scout", H100, weights="int4", prompt=9_000_000, tp=8))


def test_layouts_whose_cache_is_too_small_for_a_request_are_passed_over():
    # On four B200s the weights leave room for 1,837 tokens.
    candidates = ask_serving("deepseek-v3", hardware("b200"), weights="fp8").candidates
    assert {of.gpus for of in candidates} == {8, 16}
    assert {(of.tp, of.dp, of.ep) for of in candidates if of.gpus == 8} == {(8, 1, 1), (8, 1, 8), (1, 8, 8)}


def test_over_by_a_byte():
    needed = LLAMA.parts.stored + 0.02 * LLAMA.memory + 16.0 * LLAMA.token_limit * LLAMA.model.hidden
    short = LLAMA.having(memory_share=(needed - 1) / LLAMA.memory)
    with pytest.raises(BadInputError, match=r"over its memory by 1 byte; tp 2 fits"):
        _ = short.cache_space


def test_two_machines_break_even_at_the_price_of_their_speed():
    chips = (H100, hardware("h200"))
    plans = [plan_serving(ask_serving("llama3-8b", chip, concurrency=32, requests=64)) for chip in chips]
    first, second = (side_of(plan, price, 1e9) for plan, price in zip(plans, (2.0, 3.0), strict=True))
    of = compare_sides(first, second, chips)
    assert of.even_price == pytest.approx(2.0 * of.speedup)
    assert of.claims["hbm"] == pytest.approx(4.8 / 3.35, rel=1e-3)
    assert 1.0 < of.speedup < of.claims["hbm"]
    again = replace_price(first, of)
    assert again == pytest.approx(first.dollars_per_million)


def replace_price(first, of):
    """Return the price per million tokens of the second machine at the break-even price."""
    return of.even_price * of.second.gpus / of.second.tokens_per_s.value * 1e6 / 3600


def test_advice_on_shapes_knows_the_padded_vocabulary():
    # The known case: 50257 is padded to 50304 in nanoGPT, which is aligned to 64.
    advice = {row.what: row for row in advise(model("gpt2-xl"), H100)}
    assert advice["vocabulary"].nearest == 50304 and advice["vocabulary"].gain > 0.02
    assert not [row for row in advise(model("llama3-70b"), H100) if row.gain > 0.05]


def test_the_commands_print_and_write_json(tmp_path):
    run = CliRunner().invoke
    model_ = ["plan", "serve", "llama3-8b", "--output", "64"]
    asked = [*model_, "--concurrency", "4", "--requests", "8"]
    plan = json.loads(run(app, [*asked, "--json"]).stdout)
    assert plan["figures"]["tpot"]["low"] < plan["figures"]["tpot"]["value"] < plan["figures"]["tpot"]["high"]
    assert "decode iteration" in run(app, asked).stdout
    assert "--tensor-parallel-size 1" in run(app, [*asked, "--launch"]).stdout
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival,prompt,output\n0.0,100,20\n0.5,200,30\n")
    assert json.loads(run(app, [*model_, "--trace", str(trace), "--json"]).stdout)["within_limits"] == 1.0
    long_run = ["plan", "reliability", "llama3-70b", "--gpus", "1024", "--days", "10", "--price", "2/h"]
    assert "Goodput" in run(app, long_run).stdout
    buy = ["plan", "buy", "llama3-8b", "h100", "h200", "--concurrency", "4", "--prices", "2/h", "3/h"]
    printed = json.loads(run(app, [*buy, "--json"]).stdout)
    assert 1.0 < printed["speedup"] < 2.0  # memory bandwidth is 1.43 times as high, memory 1.76
    assert "Break-even" in run(app, buy).stdout
    assert "vocabulary" in run(app, ["plan", "shapes", "gpt2-xl"]).stdout


def test_layouts_that_are_given_in_part_are_completed():
    asked = {"weights": "fp4", "engine_name": "trtllm"}
    spread = ask_serving("deepseek-v3", hardware("gb200"), dp=4, ep=4, **asked).candidates[0]
    assert (spread.tp, spread.gpus) == (1, 4)
    assert ask_serving("deepseek-v3", hardware("gb200"), ep=8, **asked).candidates[0].tp == 8
    assert ask_serving("llama3-70b", H100, weights="bf16").candidates[0].tp == 2


def test_the_api_plans_like_the_command():
    import fathom

    plan = fathom.plan_serving("llama3-8b", "h100", concurrency=2, output=32, requests=4)
    assert plan.gpus == 1 and plan.figures["tpot"].value > plan.floor_tpot
    with pytest.raises(fathom.FathomError, match="the nearest is"):
        fathom.plan_serving("llama3-8b", "h10")


def test_a_serving_plan_is_written_as_a_page(tmp_path):
    words = ["--tp", "4", "--concurrency", "2", "--requests", "4", "--output", "8"]
    page = tmp_path / "plan.html"
    result = CliRunner().invoke(app, ["plan", "serve", "llama3-70b", *words, "--html", str(page)])
    assert result.exit_code == 0, result.output
    text = page.read_text()
    for part in (
        "Latencies of clients",
        "Where a planned iteration goes",
        "moves TPOT",
    ):
        assert part in text


def test_the_memory_rate_moves_a_small_batch_most():
    plan = plan_serving(ask_serving("llama3-70b", hardware("h100"), tp=4, concurrency=1, requests=4))
    rates = [row for row in plan.sensitivity if not row.name.startswith("host")]  # its time is uncertain
    assert rates[0].name.startswith("hbm") and rates[0].moves < 0
    assert [abs(row.moves) for row in plan.sensitivity] == sorted(
        (abs(row.moves) for row in plan.sensitivity), reverse=True
    )


def test_two_machines_train_by_their_account():
    first, second = (plan_training(ask("llama3-8b", name, gpus=8, batch=64)) for name in ("h100", "b200"))
    account = training_account(first, second)
    each = [sum(getattr(row, side) for row in account) for side in ("first_ms", "second_ms")]
    sides = [training_side(plan, 2.0, 1e12) for plan in (first, second)]
    compared = compare_sides(*sides, (H100, hardware("b200")), account)
    assert each[0] / each[1] == pytest.approx(compared.speedup)  # the account adds up to the speed-up
    assert sum(row.share for row in account) == pytest.approx(1)
    assert compared.even_price == pytest.approx(2.0 * compared.speedup)
    assert compared.speedup < max(compared.claims.values())
    assert sides[0].days == pytest.approx(1e12 / first.tokens_per_s / 86400)


def test_pools_are_the_fewest_replicas_of_nested_loops():
    limits, load = Limits(0.5, 0.02), Load(2000, 100, "poisson", rate=40.0, requests=60)
    values = calibration().values
    fleet, served = smallest_pools(LLAMA, load, limits, values)
    assert limits.met_by(served)
    for prefill, decode in (
        (fleet.prefill_replicas - 1, fleet.replicas),
        (fleet.prefill_replicas, fleet.replicas - 1),
    ):
        if prefill and decode:
            assert not limits.met_by(serve(Fleet(LLAMA, decode, LLAMA, prefill), load, values))


def test_pools_start_with_their_roles_and_a_router_that_knows_every_replica():
    made = commands(Fleet(LLAMA, 2, LLAMA, 3), Load(2000, 100))
    for pool, role in (("prefill", "kv_producer"), ("decode", "kv_consumer")):
        words = shlex.split(made[f"vllm {pool}"])
        config = json.loads(words[words.index("--kv-transfer-config") + 1])
        assert config == {"kv_connector": "NixlConnector", "kv_role": role}
        words = shlex.split(made[f"sglang {pool}"])
        assert words[words.index("--disaggregation-mode") + 1] == pool
        assert ("--disaggregation-bootstrap-port" in words) == (pool == "prefill")
    for router in ("vllm router", "sglang router"):
        named = re.findall(r"(?:PREFILL|DECODE)_\d", made[router])
        assert named == ["PREFILL_1", "PREFILL_2", "PREFILL_3", "DECODE_1", "DECODE_2"]
    alone = commands(Fleet(LLAMA, 2), Load(2000, 100))
    assert set(alone) == {"vllm", "sglang"} and "kv-transfer" not in alone["vllm"]


def test_a_fleet_that_a_cheaper_one_beats_in_both_latencies_is_not_offered():
    def answer(gpus, ttft, tpot):
        return SimpleNamespace(gpus=gpus), SimpleNamespace(ttft=np.array([ttft]), tpot=np.array([tpot]))

    rows = [answer(4, 0.2, 0.03), answer(8, 0.3, 0.02), answer(16, 0.3, 0.025), answer(149, 0.4, 0.04)]
    assert undominated(rows) == rows[:2]


def test_pools_need_limits():
    with pytest.raises(BadInputError, match="give --ttft"):
        ask_serving("llama3-8b", H100, rate=1.0, disaggregate=True)


@pytest.mark.parametrize("job", [["--gpus", "8", "--batch", "64"], ["--concurrency", "8", "--tp", "1"]])
def test_the_command_says_where_the_gpu_time_goes(job):
    result = CliRunner().invoke(app, ["plan", "buy", "llama3-8b", "h100", "b200", *job])
    assert result.exit_code == 0 and "where the GPU time goes" in result.output, result.output


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), 1e-300, -3.0])
def test_a_rate_that_no_server_sees_is_refused(rate):
    with pytest.raises(BadInputError, match="rate"):
        Load(rate=rate)


def test_an_overlapping_engine_waits_for_the_longer_of_host_and_device():
    batch, of = Batch(64, 64 * 1000.0), LLAMA.having(engine=engine("sglang"))
    quick, slow, none = (
        Iteration(of, resolved(of, VALUES) | {"host": host, "host_sequence": 0.0}).seconds(batch)
        for host in (1e-4, 1.0, 0.0)
    )
    assert quick == pytest.approx(none, rel=0.001)
    assert slow == pytest.approx(1.0, rel=0.001)
    waits = Iteration(LLAMA, resolved(LLAMA, VALUES) | {"host": 1.0, "host_sequence": 0.0}).seconds(batch)
    assert waits > 1.001
