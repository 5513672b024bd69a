"""OpenTelemetry spans of vLLM and SGLang: the ledger's parts are the attributes, and sum to the latency.

The engines' own tracing code made the files in tests/data/serving/otel from given times; no engine ran.
Spans that tests write follow the documented formats.
"""

from __future__ import annotations

import copy
import gzip
import json
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import fathom
from fathom.analysis.serving import TABLES, request_ledger, requests_account
from fathom.cli.main import app
from fathom.errors import BadInputError
from fathom.sounding import import_traces
from tests.support.paths import DATA

VLLM, SGLANG = (DATA / "serving" / "otel" / f"{name}.jsonl" for name in ("vllm", "sglang"))
START = 1_790_000_000_000_000_000  # ns
S, MS = 1_000_000_000, 1_000_000
LATENCY = "gen_ai.latency."


def objects(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def spans_of(rows: list[dict]) -> list[dict]:
    return [
        s for row in rows for of in row["resourceSpans"] for scope in of["scopeSpans"] for s in scope["spans"]
    ]


def facts(span: dict) -> dict:
    """Return the attributes by name, read without Fathom."""
    numbers = {"doubleValue": float, "intValue": int}
    return {
        a["key"]: numbers.get(kind, str)(v)
        for a in span.get("attributes", ())
        for kind, v in a["value"].items()
    }


def span(
    name: str, start: float = 0.0, end: float = 1.0, ids: tuple = ("a", "b", ""), **attributes: object
) -> dict:
    """Return a span with times in seconds after START; two underscores in a name are a dot."""
    kinds = {float: "doubleValue", int: "intValue", str: "stringValue"}
    rows = [
        {
            "key": key.replace("__", "."),
            "value": {kinds[float if value == "Infinity" else type(value)]: value},
        }
        for key, value in attributes.items()
    ]
    times = (str(START + round(at * S)) for at in (start, end))
    named = dict(zip(("traceId", "spanId", "parentSpanId"), ids, strict=True))
    return {
        **named,
        "name": name,
        **dict(zip(("startTimeUnixNano", "endTimeUnixNano"), times, strict=True)),
    } | {"attributes": rows}


def llm_request(**latencies: object) -> dict:
    return span("llm_request", **{f"gen_ai__latency__{name}": value for name, value in latencies.items()})


def written(path: Path, *spans: dict, service: str = "vllm") -> Path:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    rows = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}
    path.write_text(json.dumps(rows) + "\n")
    return path


def imported(tmp_path: Path, *files: Path):
    store = import_traces(list(files), tmp_path / "out.fathom", replace=True)
    return store, {name: store.table(name, 0).collect() for name in TABLES}


def ledger_of(tables: dict[str, pl.DataFrame], number: int, column: str = "ms") -> dict[str, float]:
    mine = request_ledger(tables).filter(pl.col("request") == number, pl.col(column) > 0)
    return dict(zip(mine["entry"], mine[column], strict=True))


def ids(store) -> set[str]:
    return {problem.what for problem in store.manifest.problems}


def test_parts_of_vllm_are_its_attributes_and_sum_to_the_latency(tmp_path):
    store, tables = imported(tmp_path, VLLM)
    assert store.manifest.problems == [] and tables["requests"].height == 21
    sent = sorted(spans_of(objects(VLLM)), key=lambda s: int(s["startTimeUnixNano"]))
    for number, known in enumerate(map(facts, sent[:20])):
        entire, first = (ledger_of(tables, number, column) for column in ("ms", "first_ms"))
        assert sum(entire.values()) == pytest.approx(1e3 * known[LATENCY + "e2e"], abs=1e-5)
        assert sum(first.values()) == pytest.approx(1e3 * known[LATENCY + "time_to_first_token"], abs=1e-5)
        for entry, name in (
            ("queue", "queue"),
            ("prefill phase", "model_prefill"),
            ("decode phase", "model_decode"),
        ):
            assert entire.get(entry, 0.0) == pytest.approx(1e3 * known[f"{LATENCY}time_in_{name}"], abs=1e-5)
        row = tables["requests"].row(number, named=True)
        assert row["prompt"] == known["gen_ai.usage.prompt_tokens"]
        assert row["generated"] == known["gen_ai.usage.completion_tokens"] and row["cached"] is None


def test_a_request_of_vllm_that_ended_before_its_first_token_has_no_stages(tmp_path):
    """vLLM gives it a TTFT of 0 s and a negative queue: times that were never set."""
    store, tables = imported(tmp_path, VLLM)
    row = tables["requests"].row(20, named=True)
    assert row["generated"] == 0 and row["token_ns"] is None and set(ledger_of(tables, 20)) == {"not known"}
    assert store.manifest.problems == []


def test_what_spans_do_not_say_is_not_analysed(tmp_path):
    store, tables = imported(tmp_path, VLLM)
    account = requests_account(tables)
    assert (account.cached_tokens, account.preemptions, account.recomputed_tokens) == (None, None, None)
    assert account.iterations == [] and account.kv_peak is None and 0.9 < account.busy <= 1
    why = {row["what"]: row["why"] for row in store.manifest.abstained}
    assert {"iterations and batches", "preemptions", "prefix cache", "gateway of vLLM"} <= set(why)
    assert "steps" not in why
    examination = fathom.open(store.path).examine()
    assert examination.serving.findings == []
    left = {row.what: row.why for row in examination.abstained}
    assert left["serving-batch-limit"] == "spans do not give at limit share, kv free"
    assert "serving-kv-cache may explain it" in left["serving-queue"]


@pytest.mark.parametrize("form", ["document", "indented", "gzip", "proto"])
def test_every_form_of_the_file_gives_the_same_tables(tmp_path, form):
    _, expected = imported(tmp_path / "lines", VLLM)
    rows, path = objects(VLLM), tmp_path / "spans.bin"
    entire = {"resourceSpans": [of for row in rows for of in row["resourceSpans"]]}
    if form == "proto":
        path.write_bytes(b"".join(map(framed, rows)))
    elif form == "gzip":
        path.write_bytes(gzip.compress(VLLM.read_bytes()))
    else:
        path.write_text(json.dumps(entire, indent=2 if form == "indented" else None))
    _, tables = imported(tmp_path, path)
    assert all(tables[name].equals(expected[name]) for name in TABLES)


def framed(row: dict) -> bytes:
    """Return an object in protocol buffers, behind its length, as the file exporter writes it."""
    formatting = pytest.importorskip("google.protobuf.json_format")
    trace = pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2")
    row = copy.deepcopy(row)
    for row_span in spans_of([row]):
        # Identities are base64 in protobuf's own JSON.
        row_span.update({key: "AAAA" + row_span[key][:8] for key in ("traceId", "spanId")})
    data = formatting.ParseDict(row, trace.TracesData()).SerializeToString()
    return len(data).to_bytes(4, "big") + data


def test_older_vllm_has_only_the_queue_and_two_latencies(tmp_path):
    """Engine V0: the queue counts from the arrival, so prefill and decode are what remains."""
    path = written(
        tmp_path / "a.json",
        llm_request(time_in_queue=0.25, time_to_first_token=0.4, e2e=1.0, time_in_scheduler=0.02),
    )
    _, tables = imported(tmp_path, path)
    assert ledger_of(tables, 0) == pytest.approx({"queue": 250, "prefill phase": 150, "decode phase": 600})
    assert tables["requests"]["prompt"][0] is None


def test_newer_names_of_token_counts(tmp_path):
    names = {"gen_ai__usage__input_tokens": 7, "gen_ai__usage__output_tokens": 5}
    cached = {"gen_ai__usage__cache_read__input_tokens": 3}
    _, tables = imported(tmp_path, written(tmp_path / "a.json", span("llm_request", **names, **cached)))
    assert tables["requests"].select("prompt", "generated", "cached").row(0) == (7, 5, 3)


def test_a_span_without_latencies_is_not_known_at_all(tmp_path):
    store, tables = imported(tmp_path, written(tmp_path / "a.json", span("llm_request", end=2.0)))
    assert ledger_of(tables, 0) == {"not known": 2000.0}
    account = requests_account(tables)
    assert (account.busy, account.ttft_ms, account.tokens_per_s, account.prompt_tokens) == (
        None,
        None,
        None,
        None,
    )
    fathom.open(store.path).examine()


def test_stages_of_sglang_are_those_of_the_first_scheduler(tmp_path):
    store, tables = imported(tmp_path, SGLANG)
    assert store.manifest.problems == [] and tables["requests"].height == 6
    by_id = {s["spanId"]: s for s in spans_of(objects(SGLANG))}
    expected: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for stage in by_id.values():
        thread = by_id.get(stage.get("parentSpanId"))
        if thread is not None and "thread_label" in facts(thread) and facts(thread).get("tp_rank", 0) == 0:
            length = (int(stage["endTimeUnixNano"]) - int(stage["startTimeUnixNano"])) / MS
            expected[thread["parentSpanId"]][stage["name"]] += length
    roots = sorted(
        (s for s in by_id.values() if "rid" in facts(s)), key=lambda s: int(s["startTimeUnixNano"])
    )
    for number, root in enumerate(roots):
        entire, stages = ledger_of(tables, number), expected[root["spanId"]]
        # SGLang's times are floats, so they are exact to 256 ns.
        assert sum(entire.values()) == pytest.approx(1e3 * facts(root)[LATENCY + "e2e"], abs=1e-3)
        names = {"tokenise": "tokenize", "gateway": "api_server_dispatch", "scheduler": "request_process"}
        names |= {"queue": "prefill_waiting", "prefill phase": "prefill_forward"}
        for entry, stage in names.items():
            assert entire[entry] == pytest.approx(stages[stage], abs=1e-3)
        again = sum(entire.get(name, 0.0) for name in ("preempted", "recompute"))
        decode = entire["decode phase"] + entire["waiting for others"] + again
        assert decode == pytest.approx(stages["decode_forward"] + stages["decode_waiting"], abs=1e-3)
    assert tables["requests"]["cached"].to_list() == [0, *[64] * 5]


def test_a_retracted_request_of_sglang_was_preempted_and_read_again(tmp_path):
    _, tables = imported(tmp_path, SGLANG)
    parts = ledger_of(tables, 4)
    assert (parts["preempted"], parts["recompute"]) == pytest.approx(
        (80, 40), abs=1e-3
    )  # SGLang's clock is a float
    account = requests_account(tables)
    assert account.preemptions == 1 and account.recomputed_tokens is None


def sglang(
    rid: str, root: str, *stages: tuple[str, float, float], role: str = "", **attributes: object
) -> list[dict]:
    low, high = min(s for _, s, _ in stages), max(e for _, _, e in stages)
    of = span(f"{role} Req {rid[:8]}", low, high, ("t", root, "room"), rid=rid, **attributes)
    thread = span("scheduler [TP 0] (host:1 | pid:2)", low, high, ("t", f"{root}0", root), tp_rank=0)
    return [of, thread, *(span(n, s, e, ("t", f"{root}{n}", f"{root}0")) for n, s, e in stages)]


def test_older_spellings_of_sglang(tmp_path):
    stages = (("dispatch", 0.0, 0.1), ("prefill_waiting", 0.1, 0.3), ("prefill_forward", 0.3, 0.6))
    rows = sglang("0_abcdef", "r", *stages, ("decode loop", 0.7, 1.0))
    _, tables = imported(tmp_path, written(tmp_path / "a.json", *rows))
    parts = {"gateway": 100, "queue": 200, "prefill phase": 300, "decode phase": 300, "not known": 100}
    assert ledger_of(tables, 0) == pytest.approx(parts)
    assert tables["requests"]["token_ns"][0] == START + 600 * MS  # no attribute: the end of its prefill


def test_servers_that_only_prefill_or_decode_make_one_request(tmp_path):
    prefill = (
        ("prefill_waiting", 0.0, 0.2),
        ("prefill_forward", 0.2, 0.5),
        ("prefill_transfer_kv_cache", 0.5, 0.7),
    )
    decode = (("decode_transferred", 0.1, 0.7), ("decode_loop", 0.7, 1.2))
    room = {"bootstrap_room": "0x1f"}
    rows = [
        *sglang("abc", "p", *prefill, role="prefill", **room),
        *sglang("def", "d", *decode, role="decode", **room),
        *sglang("ghi", "q", *prefill, role="prefill", bootstrap_room="0x20"),
    ]
    store, tables = imported(tmp_path, written(tmp_path / "a.json", *rows))
    assert tables["requests"].height == 2
    joined = next(n for n in (0, 1) if "decode phase" in ledger_of(tables, n))
    parts = {"queue": 200, "prefill phase": 300, "decode phase": 500, "not known": 200}
    assert ledger_of(tables, joined) == pytest.approx(parts)
    assert any("prefill_transfer_kv_cache" in row["why"] for row in store.manifest.abstained)


def test_spans_of_one_request_may_be_in_several_files(tmp_path):
    schedulers, tokenizers = SGLANG.read_text().splitlines()
    files = [tmp_path / "spans-1.jsonl", tmp_path / "spans-2.jsonl"]
    files[0].write_text(tokenizers + "\n")
    files[1].write_text(schedulers + "\n")
    _, expected = imported(tmp_path / "one", SGLANG)
    store, tables = imported(tmp_path, *files)
    assert store.ranks == [0] and all(tables[name].equals(expected[name]) for name in TABLES)


def test_a_damaged_line_and_a_span_that_was_sent_twice_are_reported(tmp_path):
    lines = VLLM.read_text().splitlines()
    path = tmp_path / "cut.jsonl"
    path.write_text("\n".join([*lines[:5], lines[0], lines[6][: len(lines[6]) // 2]]))
    store, tables = imported(tmp_path, path)
    assert tables["requests"].height == 5 and ids(store) == {"objects-damaged", "spans-twice"}


@pytest.mark.parametrize(
    "latencies",
    [
        {"time_in_queue": 0.6, "time_in_model_prefill": 0.3, "time_in_model_decode": 0.4, "e2e": 1.0},
        {"time_in_queue": -0.1, "time_to_first_token": 0.5, "e2e": 1.0},
        {"time_in_queue": "Infinity", "time_to_first_token": 0.5, "e2e": 1.0},
        {"time_to_first_token": 1.5, "e2e": 1.0},
    ],
)
def test_impossible_latencies_are_cut_off_and_reported(tmp_path, latencies):
    store, tables = imported(tmp_path, written(tmp_path / "a.json", llm_request(**latencies)))
    assert sum(ledger_of(tables, 0).values()) == pytest.approx(1000)
    assert ids(store) == {"stages-overrun"}


def test_a_request_that_ends_before_it_begins_is_left_out(tmp_path):
    bad = span("llm_request", 2.0, 1.0, ("a", "c", ""))
    store, tables = imported(tmp_path, written(tmp_path / "a.json", bad, llm_request(e2e=0.5)))
    assert tables["requests"].height == 1 and ids(store) == {"bad-duration"}


def test_several_services_are_named(tmp_path):
    first = written(tmp_path / "a.json", llm_request(e2e=1.0), service="blue")
    second = written(tmp_path / "b.json", span("llm_request", ids=("a", "z", "")), service="green")
    store, _ = imported(tmp_path, first, second)
    assert "blue, green" in store.manifest.problems[0].text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"resourceSpans": [', "none of its objects is a TracesData"),
        ('{"resourceSpans": []}', "it has no spans"),
        ('{"resourceMetrics": []}', "it has no spans"),
        (
            json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span("step 1")]}]}]}),
            "(step 1) is a request",
        ),
        (json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": 7}]}]}]}), "none of its objects"),
    ],
)
def test_files_without_requests_are_refused(tmp_path, text, why):
    path = tmp_path / "spans.json"
    path.write_text(text)
    with pytest.raises(BadInputError) as error:
        imported(tmp_path, path)
    assert why in str(error.value) and str(path) in str(error.value)
    assert not (tmp_path / "out.fathom").exists()


def test_spans_have_no_steps(tmp_path):
    with pytest.raises(BadInputError, match="leave --step-range out"):
        import_traces([VLLM], tmp_path / "out.fathom", step_range="decode")


def test_a_cycle_of_parents_ends(tmp_path):
    rows = [span("x", ids=("t", "1", "2")), span("y", ids=("t", "2", "1")), llm_request(e2e=1.0)]
    rows += [span(" Req abc", ids=("t", "3", ""), rid="abc")]
    _, tables = imported(tmp_path, written(tmp_path / "a.json", *rows))
    assert tables["requests"].height == 2


@pytest.mark.parametrize("file", [VLLM, SGLANG])
def test_a_report_on_requests_misses_no_steps(tmp_path, file):
    import_traces([file], tmp_path / "out.fathom")
    for command in ("report", "findings"):
        printed = CliRunner().invoke(app, [command, str(tmp_path / "out.fathom")])
        page = " ".join(printed.stdout.split())
        assert printed.exit_code == 0 and "The checks of steps do not apply" in page
        assert "no step was recorded" not in page and "Nothing was checked" not in page
