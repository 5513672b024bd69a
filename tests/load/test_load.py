"""`fathom load`: figures agree with the generator's, and every way to make a bad load test is refused."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

from fathom.errors import BadInputError
from fathom.load import Load, Refusal, Sent, Slo, Workload, frontier, judged, read
from fathom.load.schedule import offsets, rows
from tests.support.paths import DATA

MS = 1_000_000
RECORDS = DATA / "serving" / "aiperf.jsonl"  # 20 requests of aiperf 0.13 to `transformers serve`
AIPERF = {"e2e": (1010.64, 825.69, 1698.12), "tokens": 240, "seconds": 5.38}  # its own summary


def sent(n: int = 40, **more) -> list[Sent]:
    """A sound run: Poisson arrivals at 10/s, each on time and answered in about 200 ms by 10 tokens."""
    draw = np.random.default_rng(1)
    at, made = 10**18, []
    for _ in range(n):
        at += int(draw.exponential(100 * MS))
        took = int(draw.normal(200, 10) * MS)
        steps = [18.0] * 9
        facts = {"scheduled_ns": at, "tokens": 10, "client_tokens": 10, "prompt": 5, **more}
        made.append(Sent(start_ns=at, end_ns=at + took, first_ns=at + 30 * MS, intervals_ms=steps, **facts))
    return made


def codes(run: list[Sent], **options) -> set[str]:
    return {refusal.code for refusal in judged(run, **{"rate": 10.0, **options}).refusals}


def test_a_sound_run_is_not_refused():
    load = judged(sent(), rate=10.0, client_cpu=0.4)
    assert load.refusals == [] and load.notes == []
    assert load.e2e.p50 == pytest.approx(200, abs=5) and load.ttft.p50 == pytest.approx(30)


def test_latency_counts_from_the_scheduled_time():
    """Coordinated omission: a client that waits for a stall before it sends hides the stall."""
    run = sent()
    for number in range(20, 30):
        late = (30 - number) * 100 * MS
        run[number].start_ns += late
        run[number].first_ns += late
        run[number].end_ns += late
    load = judged(run, rate=10.0)
    assert load.e2e.mean == pytest.approx(200 + 5500 / 40, abs=5)
    assert "client-late" in {refusal.code for refusal in load.refusals}


def test_a_client_without_processor_time_is_refused():
    assert codes(sent(), client_cpu=0.99) == {"client-busy"}


def test_a_closed_loop_shown_as_open_is_refused():
    """Four users send as soon as they are answered; nothing was scheduled."""
    draw, free, run = np.random.default_rng(2), [10**18] * 4, []
    for _ in range(60):
        user = int(np.argmin(free))
        start, took = free[user] + MS, int(draw.normal(300, 40) * MS)
        run.append(Sent(None, start, start + took, start + 50 * MS, [25.0] * 9, tokens=10))
        free[user] = start + took
    assert "closed-loop" in codes(run, rate=20.0)
    assert "closed-loop" not in codes([Sent(**{**_fields(s), "scheduled_ns": None}) for s in sent(60)])


def _fields(request: Sent) -> dict:
    return {name: getattr(request, name) for name in Sent.__struct_fields__}


def test_chunks_are_not_taken_for_tokens():
    """An engine that packs four tokens into a chunk has no inter-token latency, but a time per token."""
    run = sent()
    for request in run:
        request.intervals_ms = [60.0, 60.0]
    load = judged(run, rate=10.0)
    assert load.itl is None and "no inter-token latency" in load.notes[0]
    assert load.tpot.p50 == pytest.approx((200 - 30) / 9, abs=1)
    assert codes(sent(tokens=None)) == {"tokens-unknown"}


def test_a_first_chunk_without_a_token_is_no_first_token():
    run = sent()
    for request in run:
        request.intervals_ms = [40.0, *[18.0] * 9]
    load = judged(run, rate=10.0)
    assert load.ttft.p50 == pytest.approx(70) and "carries no token" in load.notes[0]


def test_tokenizers_that_disagree_are_refused():
    assert codes(sent(client_tokens=14), tokenizer=True) == {"tokenizers-disagree"}
    assert codes(sent(client_tokens=10), tokenizer=True) == set()


def test_goodput_is_at_most_the_rate_achieved():
    """Answers that outlast the last arrival little, or much: every request meets the limit."""
    for gap, took in ((100, 20), (100, 20_000), (20, 500)):
        starts = [n * gap * MS for n in range(30)]
        run = [Sent(at, at, at + took * MS, at + took * MS // 2, [1.0] * 9, tokens=10) for at in starts]
        load = judged(run, rate=1000.0 / gap, slo=Slo.parse("e2e<60s"))
        assert load.good == 1 and 0 < load.good_per_s <= load.achieved


def test_warm_up_that_counts_is_refused():
    run = sent()
    run[0].end_ns += 2000 * MS
    assert codes(run) == {"warm-up"}
    assert codes(run, warmup=1) == set()


def test_a_server_that_falls_behind_has_no_steady_state():
    run = sent(60)
    for number, request in enumerate(run):
        request.end_ns += number * 20 * MS
    assert codes(run) == {"no-steady-state"}


def test_too_few_requests_for_the_percentile():
    assert codes(sent(19)) == {"too-few"}
    assert codes(sent(20)) == set()
    assert codes(sent(100), percentile=0.99) == {"too-few"}
    assert judged(sent(40), rate=10.0).e2e.p99 is None


def test_failures_are_refused():
    run = sent()
    run[3].failed = True
    assert codes(run) == {"failures"}


def test_the_figures_agree_with_the_generators_own():
    """The records have no schedule of ours, so latency counts from the send, as aiperf's does."""
    run = read(RECORDS)
    load = judged(run, rate=3.0)
    mean, p50, p90 = AIPERF["e2e"]
    assert (load.e2e.mean, load.e2e.p50, load.e2e.p90) == pytest.approx((mean, p50, p90), rel=0.005)
    assert load.tokens_per_s == pytest.approx(AIPERF["tokens"] / AIPERF["seconds"], rel=0.001)
    assert load.requests == 20 and load.failed == 0


def test_ttft_of_the_real_server_is_that_of_the_second_chunk():
    """By hand, from the first record: 179.1 ms to a chunk with a role, 1410.8 ms more to the first token."""
    first = read(RECORDS)[0]
    assert first.empty_start and first.tokens == 12
    load = judged([first], rate=1.0)
    assert load.ttft.p50 == pytest.approx(179.107 + 1410.762, abs=0.01)
    assert load.tpot.p50 == pytest.approx((1950 + 179.1 - 1589.87) / 11, abs=1)


def test_goodput_counts_requests_that_meet_every_limit():
    load = judged(sent(), rate=10.0, slo=Slo.parse("ttft<40,e2e<0.2s"))
    met = np.mean([(s.end_ns - s.start_ns) / MS < 200 for s in sent()])
    assert load.good == pytest.approx(met) and 0 < load.good < 1
    assert judged(sent(), rate=10.0, slo=Slo.parse("ttft<30")).good == 0


@pytest.mark.parametrize("text", ["ttft", "p99<3", "ttft<-1", ""])
def test_a_bad_slo_is_one_sentence(text):
    with pytest.raises(BadInputError, match="--slo has"):
        Slo.parse(text)


@pytest.mark.parametrize(("pattern", "variation"), [("constant", 0.0), ("poisson", 1.0), ("bursty", 2.0)])
def test_arrivals_have_the_rate_and_the_variation_of_their_pattern(pattern, variation):
    at = offsets(Workload(rate=5.0, requests=4000, pattern=pattern))
    gaps = np.array([b - a for a, b in pairwise(at)])
    assert at[0] == 0 and gaps.mean() == pytest.approx(0.2, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, abs=0.15)


def test_conversations_and_shared_prefixes():
    made = rows(Workload(requests=6, turns=3, words=10, shared=4))
    assert [row["session_id"] for row in made] == ["s0"] * 3 + ["s1"] * 3
    firsts = [row["text_input"].split() for row in made if "timestamp" in row]
    assert len(firsts) == 2 and firsts[0][:4] == firsts[1][:4] and firsts[0][4:] != firsts[1][4:]


def test_a_trace_is_replayed_in_order(tmp_path):
    trace = tmp_path / "trace.jsonl"
    lines = [{"timestamp": at, "text_input": "x", "output_length": 2} for at in (500, 0)]
    trace.write_text("\n".join(map(json.dumps, lines)))
    replay = Workload(pattern="replay", trace=trace)
    assert offsets(replay) == [0.0, 0.5]
    trace.unlink()  # it is read once
    assert [row["timestamp"] for row in rows(replay)] == [0, 500]
    trace.write_text('{"text_input": "x"}')
    with pytest.raises(BadInputError, match="without a timestamp"):
        rows(Workload(pattern="replay", trace=trace))


def point(rate: float, tokens: float, user: float, *refusals: Refusal) -> Load:
    known = {"failed": 0, "ttft": None, "tpot": None, "itl": None, "e2e": None, "lag_ms": None}
    rest = {"client_cpu": None, "good": None, "good_per_s": None, "requests": 100, "warmup": 0}
    rates = {"tokens_per_s": tokens, "tokens_per_s_per_user": user, "refusals": list(refusals)}
    return Load(pattern="poisson", rate=rate, achieved=rate, **known, **rest, **rates)


def test_the_knee_of_a_frontier():
    """By hand: (100, 50), (190, 46), (250, 20) lie on the frontier; (180, 30) is beaten; 8/s is refused."""
    loads = [point(1, 100, 50), point(2, 190, 46), point(4, 250, 20), point(3, 180, 30)]
    sweep = frontier([*loads, point(8, 400, 60, Refusal("no-steady-state", ""))])
    assert sweep.knee == 2
    assert [p.on_frontier for p in sweep.points] == [True, True, True, False, False]
    assert frontier(loads[:2]).knee is None


@pytest.mark.parametrize(
    "line", ['{"timestamp": [1]}', '{"timestamp": NaN}', '{"timestamp": -1}', "[" * 5_000]
)
def test_a_trace_needs_times_that_can_be_kept(tmp_path, line):
    trace = tmp_path / "trace.jsonl"
    trace.write_text(line + "\n")
    with pytest.raises(BadInputError):
        offsets(Workload(pattern="replay", trace=trace))
