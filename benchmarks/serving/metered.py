"""Serve vLLM's metrics for a server that has none: a proxy that counts the requests which pass through it.

    python -m benchmarks.serving.metered http://127.0.0.1:8000 8001 --echoes 1 [--key KEY]
    fathom load http://127.0.0.1:8001 --model MODEL --rate 4

`transformers serve` and llama-cpp-python's server have no `/metrics`, and vLLM needs a GPU. The proxy knows
when a request came, when its first token passed, and when its last did. `transformers serve` sends the prompt
before the tokens, which `--echoes 1` leaves out. With `--key`, requests without that key are refused.
"""

from __future__ import annotations

import argparse
import re
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0)
PATIENCE_S = 300.0
TEXT = re.compile(rb'"content": ?"[^"]')  # of a chunk; the first one may carry a role alone


class Metrics:
    """The metrics of vLLM that a proxy can know."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        to = {"registry": self.registry}
        self.running = Gauge("vllm:num_requests_running", "Requests under way.", **to)
        self.first = Histogram(
            "vllm:time_to_first_token_seconds", "To the first token.", buckets=BUCKETS, **to
        )
        self.all = Histogram("vllm:e2e_request_latency_seconds", "To the last chunk.", buckets=BUCKETS, **to)
        self.finished = Counter("vllm:request_success", "Requests answered.", **to)


class Proxy(BaseHTTPRequestHandler):
    """Passes requests on to `server`."""

    server_url = ""
    key = ""
    echoes = 0  # texts before the first token
    metrics = Metrics()

    def do_GET(self) -> None:
        """Answer with the metrics, or pass the request on."""
        if self.path != "/metrics":
            self._pass(None)
            return
        if self._allowed():
            self._answer(200, generate_latest(self.metrics.registry))

    def do_POST(self) -> None:
        """Pass the request on, and time its answer."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self._allowed():
            with self.metrics.running.track_inprogress():
                self._pass(body)

    def _allowed(self) -> bool:
        allowed = not self.key or self.headers.get("Authorization") == f"Bearer {self.key}"
        if not allowed:
            self._answer(401, b'{"error": "Unauthorized"}')
        return allowed

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _pass(self, body: bytes | None) -> None:
        start = time.perf_counter()
        asked = urllib.request.Request(
            f"{self.server_url}{self.path}", body, {"Content-Type": "application/json"}, method=self.command
        )
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
                self.end_headers()
                self._chunks(answer, start)
        except urllib.error.HTTPError as error:
            self._answer(error.code, error.read())

    def _chunks(self, answer: object, start: float) -> None:
        left = self.echoes + 1
        while chunk := answer.read1(1 << 16):  # type: ignore[attr-defined]
            self.wfile.write(chunk)
            self.wfile.flush()
            if left and TEXT.search(chunk):
                left -= 1
                if not left:
                    self.metrics.first.observe(time.perf_counter() - start)
        self.metrics.all.observe(time.perf_counter() - start)
        self.metrics.finished.inc()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server")
    parser.add_argument("port", type=int)
    parser.add_argument("--key", default="")
    parser.add_argument("--echoes", type=int, default=0)
    chosen = parser.parse_args()
    Proxy.server_url, Proxy.key, Proxy.echoes = chosen.server.rstrip("/"), chosen.key, chosen.echoes
    ThreadingHTTPServer(("127.0.0.1", chosen.port), Proxy).serve_forever()


if __name__ == "__main__":
    main()
