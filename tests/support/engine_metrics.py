"""A stand-in for an engine's `/metrics`: vLLM's or SGLang's documented names, written by prometheus_client.

No engine runs: tests observe latencies and set gauges, and know what they observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

from tests.support.http_servers import Quiet, served

prometheus = pytest.importorskip("prometheus_client")

BUCKETS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0)  # vLLM's, of request latencies
HISTOGRAMS = {
    "vllm": {
        "ttft": "time_to_first_token_seconds",
        "queue": "request_queue_time_seconds",
        "prefill": "request_prefill_time_seconds",
        "e2e": "e2e_request_latency_seconds",
    },
    "sglang": {
        "ttft": "time_to_first_token_seconds",
        "queue": "queue_time_seconds",
        "e2e": "e2e_request_latency_seconds",
    },
}
GAUGES = {
    "vllm": {
        "running": "num_requests_running",
        "waiting": "num_requests_waiting",
        "cache": "kv_cache_usage_perc",
    },
    "sglang": {
        "running": "num_running_reqs",
        "waiting": "num_queue_reqs",
        "cache": "token_usage",
        "accept_rate": "spec_accept_rate",
    },
}
COUNTERS = {
    "vllm": {
        "asked": "prefix_cache_queries",
        "hits": "prefix_cache_hits",
        "preemptions": "num_preemptions",
        "finished": "request_success",
        "drafted": "spec_decode_num_draft_tokens",
        "accepted": "spec_decode_num_accepted_tokens",
        "prompt": "prompt_tokens",
        "generated": "generation_tokens",
    },
    "sglang": {
        "asked": "prompt_tokens_total",
        "hits": "cached_tokens_total",
        "preemptions": "num_retracted_requests_total",
        "finished": "num_requests_total",
    },
}


class Engine:
    """The metrics of one engine."""

    def __init__(self, engine: str = "vllm", **labels: str) -> None:
        self.registry = prometheus.CollectorRegistry()
        self.labels = {"model_name": "m", **({"engine": "0"} if engine == "vllm" else {}), **labels}
        made = {
            name: prometheus.Histogram(
                f"{engine}:{of}", "Seconds.", list(self.labels), buckets=BUCKETS, registry=self.registry
            )
            for name, of in HISTOGRAMS[engine].items()
        }
        made |= {name: self._make(prometheus.Gauge, engine, of) for name, of in GAUGES[engine].items()}
        made |= {name: self._make(prometheus.Counter, engine, of) for name, of in COUNTERS[engine].items()}
        self.of = {name: metric.labels(**self.labels) for name, metric in made.items()}

    def _make(self, kind: Callable, engine: str, name: str) -> object:
        return kind(f"{engine}:{name}", "A metric.", list(self.labels), registry=self.registry)

    def finish(self, **seconds: float) -> None:
        """Observe the latencies of one finished request."""
        for name, value in seconds.items():
            self.of[name].observe(value)
        self.of["finished"].inc()

    def now(self, **gauges: float) -> None:
        """Set gauges."""
        for name, value in gauges.items():
            self.of[name].set(value)

    def text(self) -> str:
        """Return the exposition."""
        return prometheus.generate_latest(self.registry).decode()


@contextmanager
def serving(text: Callable[[], str | int]) -> Iterator[str]:
    """Context manager that serves texts at `/metrics`, or a status, and yields the server's address."""

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text() if self.path == "/metrics" else 404
            self.send_response(body if isinstance(body, int) else 200)
            self.end_headers()
            if isinstance(body, str):
                self.wfile.write(body.encode())

    with served(Handler) as url:
        yield url
