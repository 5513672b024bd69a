"""A wrong address or model shows before a load test, in the server's own words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest
from typer.testing import CliRunner

from fathom.cli.main import app
from fathom.errors import BadInputError
from fathom.load import api_key, require_answer
from fathom.load.asking import endpoint
from fathom.load.scraping import UnreadableError, scrape
from tests.support.http_servers import Quiet, served


@contextmanager
def answering(status: int, body: str, asked: list[dict] | None = None) -> Iterator[str]:
    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            read = self.rfile.read(int(self.headers["Content-Length"]))
            if asked is not None:
                asked.append({"path": self.path, **json.loads(read)})
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

    with served(Handler) as url:
        yield url


def test_a_server_that_answers_is_asked_for_one_token():
    asked: list[dict] = []
    with answering(200, "{}", asked) as url:
        require_answer(f"{url}/v1", "qwen")
    assert [(of["path"], of["model"], of["max_tokens"]) for of in asked] == [
        ("/v1/chat/completions", "qwen", 1)
    ]


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (404, '{"error": {"message": "No model `qwen`.", "code": 404}}', "with status 404: No model `qwen`."),
        (400, '{"detail": "Server is pinned to tiny."}', "with status 400: Server is pinned to tiny."),
        (429, '{"error": "Too many requests"}', "with status 429: Too many requests."),
        (500, "Internal Server Error", "with status 500: Internal Server Error."),
        (503, "", "with status 503."),
        (500, "x" * 5000, "x" * 200 + "."),
        (500, "[" * 100_000, "["),
    ],
)  # fmt: skip
def test_a_refusal_has_the_servers_reason(status, body, says):
    with answering(status, body) as url, pytest.raises(BadInputError, match="for the model 'qwen'") as error:
        require_answer(url, "qwen")
    assert says in str(error.value) and len(str(error.value)) < 400


@contextmanager
def guarded(key: str) -> Iterator[str]:
    """A server that answers requests with its key only, and repeats a wrong one in its reason."""

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            given = self.headers["Authorization"]
            right = given == f"Bearer {key}"
            if self.path == "/elsewhere":
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{self.server.server_port}/metrics")
            else:
                self.send_response(200 if right else 401)
            self.end_headers()
            self.wfile.write(b"vllm:num_requests_running 1\n" if right else f"no: {given}".encode())

        def do_GET(self) -> None:
            self.do_POST()

    with served(Handler) as url:
        yield url


def test_a_server_that_demands_a_key_gets_it():
    with guarded("k-123") as url:
        require_answer(url, "qwen", "k-123")
        assert scrape(f"{url}/metrics", "k-123").gauges == {"running": 1}
        with pytest.raises(UnreadableError, match="401"):
            scrape(f"{url}/metrics")
        with pytest.raises(BadInputError, match=r"demands an API key, .*--api-key-env"):
            require_answer(url, "qwen")


def test_a_wrong_key_is_refused_and_not_repeated():
    with guarded("k-123") as url, pytest.raises(BadInputError, match="refuses the API key") as error:
        require_answer(url, "qwen", "k-999")
    assert "k-999" not in str(error.value) and "<redacted>" in str(error.value)


def test_the_key_does_not_follow_a_redirection():
    with guarded("k-123") as url, pytest.raises(UnreadableError, match="401"):
        scrape(f"{url}/elsewhere", "k-123")


def test_the_key_is_read_from_the_variable_that_the_user_names(monkeypatch):
    for name in ("FATHOM_API_KEY", "MINE", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "k-1")
    assert api_key() is None
    monkeypatch.setenv("FATHOM_API_KEY", " k-2\n")
    assert api_key() == "k-2" and api_key("OPENAI_API_KEY") == "k-1"
    with pytest.raises(BadInputError, match="MINE, which is not set"):
        api_key("MINE")
    monkeypatch.setenv("MINE", "k-3\r\nHost: other")
    with pytest.raises(BadInputError, match="MINE holds no API key") as error:
        api_key("MINE")
    assert "k-3" not in str(error.value)


def test_no_server_and_no_address_of_http():
    with pytest.raises(BadInputError, match=r"No server answers at http://127\.0\.0\.1:9/v1/chat"):
        require_answer("127.0.0.1:9", "qwen")
    with pytest.raises(BadInputError, match="not an address of HTTP"):
        require_answer("file:///etc/passwd", "qwen")


def test_the_command_ends_before_the_test_begins(monkeypatch):
    monkeypatch.setattr("fathom.load.drive", lambda *_: pytest.fail("it began"), raising=False)
    done = CliRunner().invoke(app, ["load", "http://127.0.0.1:9", "--model", "m"])
    assert done.exit_code != 0


def test_endpoints():
    assert (
        endpoint("http://h:8000", "metrics") == endpoint("h:8000/v1/", "metrics") == "http://h:8000/metrics"
    )
    assert endpoint("https://h/llm/v1?x=1", "metrics") == "https://h/llm/metrics"


@pytest.mark.parametrize(
    "options, words",
    [
        (["--pattern", "replay"], "--pattern replay --trace FILE"),
        (["--trace", "trace.jsonl"], "--pattern replay --trace FILE"),
        (["--pattern", "replay", "--trace", "trace.jsonl"], "does not exist"),
        (["--pattern", "replay", "--trace", "trace.jsonl", "--sweep", "1,2"], "leave out --sweep"),
        (["--requests", "5", "--warmup", "5"], "leaves none of the 5 requests"),
        (["--requests", "5", "--turns", "2", "--warmup", "4"], "leaves none of the 4 requests"),
    ],
)
def test_arrivals_are_checked_before_the_server_is_asked(options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked: list[dict] = []
    with answering(200, "{}", asked) as url:
        done = CliRunner().invoke(app, ["load", url, "--model", "m", *options])
    assert done.exit_code == 2 and words in " ".join(done.output.split()) and asked == []
