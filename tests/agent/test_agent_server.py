"""The server, driven by the SDK's client."""

from __future__ import annotations

import builtins
import json
import shutil

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from fathom.agent import Allowed, Roots, make_server
from fathom.agent.server import guarded, serve_stdio
from tests.support.paths import EXAMPLES

GPT = "train_gpt-counters-h200.fathom.zip"
READING = {
    "report", "findings", "account", "kernel", "query", "compare", "what_if", "explain", "lab_show",
    "machine", "more",
}  # fmt: skip
ACTING = {"record", "prove", "lab_run"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(EXAMPLES / GPT, folder)
    return folder


@pytest.fixture(scope="module")
def server(folder):
    return make_server(Roots([folder]), Allowed())


def ask(server, tool, **arguments):
    """The structured answer of a tool, whose text says the same."""

    async def call():
        async with Client(server) as client:
            return await client.call_tool(tool, arguments)

    result = anyio.run(call)
    assert not result.is_error, result.content[0].text
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


def refused(server, tool, **arguments):
    """The message of a call that fails."""

    async def call():
        async with Client(server) as client:
            return await client.call_tool(tool, arguments)

    result = anyio.run(call)
    assert result.is_error
    return result.content[0].text


def listed(server):
    async def call():
        async with Client(server) as client:
            return (await client.list_tools()).tools

    return {tool.name: tool for tool in anyio.run(call)}


def test_it_only_reads_unless_programs_are_allowed(folder, server):
    tools = listed(server)
    assert set(tools) == READING
    assert all(tool.annotations.read_only_hint for tool in tools.values())
    more = listed(make_server(Roots([folder]), Allowed(["python train.py"])))
    assert set(more) == READING | ACTING
    assert not any(more[name].annotations.read_only_hint for name in ACTING)
    assert all(tool.description and tool.output_schema["properties"]["rows"] for tool in more.values())


def test_report_leads_with_the_verdict_and_its_ledger_adds_up(server):
    answer = ask(server, "report", sounding=GPT, price="3.50/h")
    facts = answer["facts"]
    assert facts["verdict"]["finding"] == "framework-not-compiled" == facts["findings"][0]
    assert "cost" in facts and facts["integrity_ok"] and facts["not_analysed"]
    assert answer["units"]["speed_of_light_ms"] == "ms" and answer["units"]["mfu_percent"] == "%"
    rows = answer["rows"]
    while answer.get("more"):
        answer = ask(server, "more", handle=answer["more"])
        rows = rows + answer["rows"]
    assert sum(row[2] for row in rows) == pytest.approx(facts["step"]["clean_ms"], rel=1e-3)


def test_findings_have_evidence_gain_and_remedy(server):
    first = ask(server, "findings", sounding=GPT)["rows"][0]
    assert first["gain_low_ms"] < first["gain_ms"] < first["gain_high_ms"]
    assert first["evidence"] and "torch.compile" in first["remedy"] and "mechanism" not in first
    full = ask(server, "findings", sounding=GPT, id=first["id"])["rows"][0]
    assert full["mechanism"] and full["claims"] and full["changes"]
    assert ask(server, "findings", sounding=GPT, headroom=True)["rows"][0]["of_ceiling_percent"] < 100


def test_account_adds_up_to_the_step(server):
    answer = ask(server, "account", sounding=GPT)
    total, rows = answer["facts"]["total_ms"], answer["rows"]
    while answer.get("more"):
        answer = ask(server, "more", handle=answer["more"])
        rows = rows + answer["rows"]
    assert sum(row[1] for row in rows) == pytest.approx(total, rel=1e-3)


def test_kernel_lists_families_and_shows_one(server):
    every = ask(server, "kernel", sounding=GPT)
    assert every["columns"][0] == "family" and every["rows_left"] and every["more"]
    single = ask(server, "kernel", sounding=GPT, pattern="layer_norm")
    assert (
        "layer_norm" in single["facts"]["family"]
        and single["facts"]["reasons"]
        and single["facts"]["other_matches"]
    )
    assert "measure" in single["columns"] and single["rows"]


def test_query_returns_rows_of_sql(server):
    answer = ask(
        server, "query", sounding=GPT, sql="SELECT kind, COUNT(*) AS n FROM kernels GROUP BY kind ORDER BY n"
    )
    assert answer["columns"] == ["kind", "n"] and answer["rows"][-1][0] == "compute"
    wide = ask(server, "query", sounding=GPT, sql="SELECT * FROM ops")
    assert wide["facts"]["count"] == len(wide["rows"]) + wide["rows_left"]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT a.name FROM ops a CROSS JOIN ops b", "rows"),
        ("SELECT * FROM ops a CROSS JOIN ops b CROSS JOIN ops c", "rows|memory|takes more"),
        ("SELECT LPAD(name, 1000000, 'x') AS n FROM ops LIMIT 1000", "larger than|memory"),  # 1 GB
        ("SELECT * FROM read_csv('/etc/passwd')", "reads files"),
        ("DROP TABLE ops", "write a SELECT"),
        ("SELECT nothing FROM ops", "no column"),
    ],
)
def test_large_answers_and_other_statements_are_refused(server, sql, why):
    import re

    assert re.search(why, refused(server, "query", sounding=GPT, sql=sql))


def test_what_if_predicts(server):
    answer = ask(server, "what_if", sounding=GPT, changes=["all-kernels=0.5"])
    assert answer["facts"]["clean_predicted_ms"] < answer["facts"]["clean_ms"]


def test_compare_gives_changes_that_add_up(server, folder):
    other = "train_gpt-h200.fathom.zip"
    shutil.copy(EXAMPLES / other, folder)
    answer = ask(server, "compare", baseline=[other], candidate=[GPT])
    facts, rows = answer["facts"], answer["rows"]
    assert facts["verdict"] in ("faster", "slower", "same", "inconclusive") and facts["headline"]
    while answer.get("more"):
        answer = ask(server, "more", handle=answer["more"])
        rows = rows + answer["rows"]
    assert sum(row[3] for row in rows) == pytest.approx(facts["change_ms"], abs=0.01)
    assert "no sounding" in refused(server, "compare", baseline=["nothing"], candidate=[GPT])
    (folder / other).unlink()


def test_catalogues_and_machine(server):
    every = ask(server, "explain")
    assert every["facts"]["count"] == len(every["rows"]) + every.get("rows_left", 0)
    assert "launch" in ask(server, "explain", kind="host-launch-bound")["facts"]["mechanism"]
    assert "similar" in refused(server, "explain", kind="launch-bound")
    assert "explain does not take id; its arguments are kind" in refused(server, "explain", id="host-gc")
    assert "compare does not take one and needs" in refused(server, "compare", one="a")
    assert "The argument baseline.0 of compare" in refused(server, "compare", baseline=[3], candidate=["a"])
    assert ask(server, "lab_show")["columns"][0] == "name"
    shown = ask(server, "lab_show", name="transpose")
    assert shown["facts"]["idea"] and any("def transpose" in row for row in shown["rows"])
    of_finding = ask(server, "lab_show", name="input-too-few-workers")
    assert of_finding["facts"]["name"] == "loader-workers" and of_finding["rows"]
    assert ask(server, "lab_show", name="bank_padding")["facts"]["name"] == "bank-padding"
    assert len(ask(server, "lab_show", name="input")["rows"]) > 1
    unknown = refused(server, "lab_show", name="xyzzy-0")
    assert "lab_show without a name lists all" in unknown and "fathom lab" not in unknown
    assert ask(server, "machine")["facts"]["versions"]["python"]
    assert sum(ask(server, "machine", show="checks")["facts"]["checks"].values()) > 100


def test_paths_outside_the_roots_are_refused(server, folder):
    make_file = folder.parent / "outside.fathom.zip"
    shutil.copy(EXAMPLES / GPT, make_file)
    (folder / "link.fathom.zip").symlink_to(make_file)
    for path in ("../outside.fathom.zip", str(make_file), "link.fathom.zip", "/etc"):
        assert "outside" in refused(server, "report", sounding=path)
    (folder / "link.fathom.zip").unlink()


def test_soundings_are_resources(server):
    async def read():
        async with Client(server) as client:
            resources = (await client.list_resources()).resources
            text = (await client.read_resource(resources[0].uri)).contents[0].text
            with pytest.raises(MCPError):
                await client.read_resource("sounding://../outside.fathom.zip")
            return [resource.name for resource in resources], json.loads(text)

    names, content = anyio.run(read)
    assert names == [GPT] and content["facts"]["verdict"]["bound"] == "memory"


def test_http_needs_the_token_and_a_local_host(server):
    import httpx2

    app = guarded(server, "secret")

    async def calls():
        transport = httpx2.ASGITransport(app=app)
        bearer = {"Authorization": "Bearer secret"}
        async with server.session_manager.run():
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as plain:
                none = (await plain.post("/mcp", json={})).status_code
                wrong = (
                    await plain.post("/mcp", json={}, headers={"Authorization": "Bearer secres"})
                ).status_code
                away = (
                    await plain.post("/mcp", json={}, headers={**bearer, "Host": "evil.example"})
                ).status_code
                page = (
                    await plain.post("/mcp", json={}, headers={**bearer, "Origin": "http://evil.example"})
                ).status_code
            async with (
                httpx2.AsyncClient(transport=transport, headers=bearer) as known,
                Client(streamable_http_client("http://127.0.0.1:1/mcp", http_client=known)) as client,
            ):
                tools = (await client.list_tools()).tools
        return none, wrong, away, page, len(tools)

    assert anyio.run(calls) == (401, 401, 421, 403, len(READING))


def test_a_client_that_leaves_before_its_answer_is_no_error(server, monkeypatch):
    """The SDK's tasks raise a group, which the command line does not know."""

    def leave(kind: str) -> None:
        raise builtins.ExceptionGroup("unhandled errors in a TaskGroup", [BrokenPipeError(32, "Broken pipe")])

    monkeypatch.setattr(server, "run", leave)
    with pytest.raises(BrokenPipeError):
        serve_stdio(server)
