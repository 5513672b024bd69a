"""How aiperf is started, watched, and heard when it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fathom.errors import FathomError
from fathom.load import Sent, Workload, drive
from fathom.load.generator import busiest

MS, S = 10**6, 10**9
# The end of the output of aiperf 0.13, whose tokenizer was not on the hub.
PANEL = """\
15:22:01.357 ERROR    Failed to handle command profile_configure (base_component_service.py:522)

╭─ AIPerf System Exit Errors ──────────────────────────────────────────────────╮
│ • Service: timing_manager                                                    │
│    Operation: Configure Profiling                                            │
│    Error: CommandError                                                       │
│    Reason: Dataset configuration failed: TokenizerError: Failed to load      │
│            tokenizer 'qwen': OSError: qwen is not a local folder             │
│                                                                              │
│ • Service: system_controller                                                 │
│    Operation: Starting                                                       │
│    Error: HookError                                                          │
│    Reason: HookError("SystemController._start_services: Failed to perform    │
│            operation 'Configure Profiling'")                                 │
│    Cause: LifecycleOperationError("Failed to perform operation 'Configure    │
│            Profiling'")                                                      │
╰──────────────────────────────────────────────────────────────────────────────╯
Log File: /tmp/out/logs/aiperf.log
"""


@pytest.fixture
def aiperf(tmp_path, monkeypatch):
    """A program in aiperf's place that keeps its arguments and environment, and fails with this output."""

    def made(output: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "output").write_text(output)
        program = folder / "aiperf"
        program.write_text(
            f"#!/bin/sh\ncd {folder}\nenv > environment\n"
            'for word in "$@"; do echo "$word"; done > words\n'
            'while [ $# -gt 1 ]; do [ "$1" = --tokenizer ] && cp -r "$2" tokenizer\n'
            '[ "$1" = --config ] && cp "$2" config; shift; done\n'
            "cat output; exit 1\n"
        )
        program.chmod(0o755)
        monkeypatch.setattr("fathom.load.generator.shutil.which", lambda *_, **__: str(program))
        return folder

    return made


def test_the_first_reason_of_a_failure_is_shown_completely(aiperf):
    aiperf(PANEL)
    with pytest.raises(FathomError) as error:
        drive("http://localhost:1", "qwen", Workload(requests=2))
    assert str(error.value) == (
        "aiperf failed: Dataset configuration failed: TokenizerError: Failed to load "
        "tokenizer 'qwen': OSError: qwen is not a local folder"
    )


def test_no_tokenizer_is_looked_up_where_the_server_counts_tokens(aiperf, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = aiperf("no panel")
    with pytest.raises(FathomError, match="it printed no reason"):
        drive("http://localhost:1", "qwen", Workload(requests=2))
    assert "--use-server-token-count" in (folder / "words").read_text().split()
    assert json.loads((folder / "tokenizer" / "tokenizer.json").read_text())["model"]["type"] == "WordLevel"
    assert "HF_HUB_OFFLINE" not in (folder / "environment").read_text()


def test_the_key_is_in_the_environment_alone(aiperf):
    folder = aiperf("│ Reason: the server said: bad key k-123 │")
    with pytest.raises(FathomError, match="bad key <redacted>"):
        drive("http://localhost:1", "qwen", Workload(requests=2), key="k-123")
    endpoint = json.loads((folder / "config").read_text())["benchmark"]["endpoint"]
    assert endpoint["headers"] == {"Authorization": "Bearer ${FATHOM_API_KEY}"}
    assert "k-123" not in (folder / "words").read_text() + (folder / "config").read_text()
    assert "FATHOM_API_KEY=k-123\n" in (folder / "environment").read_text()


def test_a_trace_without_texts_needs_the_models_tokenizer(aiperf, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 5, "output_length": 2}\n')
    folder = aiperf("no panel")
    with pytest.raises(FathomError):
        drive("http://localhost:1", "qwen", Workload(requests=1, pattern="replay", trace=trace))
    assert "--tokenizer" not in (folder / "words").read_text().split()


def test_the_clients_processor_time_counts_while_requests_are_under_way():
    requests = [Sent(None, 10 * S, 14 * S, None)]
    starting = [(int(ns * S), 1.0) for ns in (1, 5, 10.2)]  # the last is mostly of the time before
    meanwhile = [(int(ns * S), share) for ns, share in ((10.8, 0.1), (12, 0.4), (13.9, 0.2))]
    after = [(15 * S, 0.9)]
    assert busiest(starting + meanwhile + after, requests) == 0.4
    assert busiest(starting, requests) is None and busiest(meanwhile, []) is None
