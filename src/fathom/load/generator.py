"""Run aiperf on a schedule of ours, and read the requests that it recorded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import psutil

from fathom.errors import BadInputError, FathomError
from fathom.load.key import VARIABLE, without
from fathom.load.results import Sent
from fathom.load.schedule import Workload, offsets, rows
from fathom.units import NS_PER_MS, NS_PER_S

Share = tuple[int, float]  # time of a reading in ns, and the busiest process's share of a core before it
EXTRA = "Install the load generator: pip install 'fathom-perf[serve]'."
MOST_WORDS = 300  # characters of aiperf's reason
EVERY_S = 0.5  # between readings of the generator's processor time
_UNKNOWN = "<unk>"
_TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {_UNKNOWN: 0}, "unk_token": _UNKNOWN},
}
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")  # with these, aiperf loads no tokenizer from a folder
PATIENCE_S = 120.0  # to start, and to answer after the last request was due


def drive(
    url: str, model: str, load: Workload, tokenizer: str | None = None, key: str | None = None
) -> tuple[list[Sent], float | None]:
    """Send the load; return the requests by time of sending, and the share of a core of the busiest process.

    The share is None if requests took under a second. Raises FathomError if aiperf is missing or fails.
    """
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        schedule, requests = folder / "schedule.jsonl", rows(load)
        schedule.write_text("".join(json.dumps(row) + "\n" for row in requests), encoding="utf-8")
        out, counted = folder / "out", [] if tokenizer else ["--use-server-token-count"]
        if tokenizer is None and all("text_input" in row for row in requests):
            tokenizer = str(_placeholder(folder / "tokenizer"))
        if tokenizer:
            counted += ["--tokenizer", tokenizer]
        config = folder / "config.yaml"
        config.write_text(json.dumps(_config(url, model, schedule, key is not None)), encoding="utf-8")
        used = _run([*_command(config, out), *counted], offsets(load)[-1], key)
        file = out / "profile_export.jsonl"
        if not file.is_file():
            raise FathomError(
                f"aiperf recorded no requests at {url}; check the address and the model's name."
            )
        sent = read(file, offsets(load) if load.turns == 1 else None)
        return sent, busiest(used, sent)


def _placeholder(folder: Path) -> Path:
    """Write a tokenizer that aiperf can load without a network; the server counts the tokens.

    Without it, aiperf looks the model's name up on Hugging Face's hub, where servers' own names are unknown.
    """
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(_TOKENIZER), encoding="utf-8")
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": _UNKNOWN}
    (folder / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    return folder


def _config(url: str, model: str, schedule: Path, keyed: bool) -> dict[str, Any]:
    """Return the configuration of aiperf, as JSON, which is YAML.

    It names the variable that holds the key: other users of the machine can read a command line.
    """
    about = {"url": url, "type": "chat", "streaming": True, "use_legacy_max_tokens": True}
    headers = {"headers": {"Authorization": f"Bearer ${{{VARIABLE}}}"}} if keyed else {}
    dataset = {"type": "file", "path": str(schedule), "format": "mooncake_trace"}
    phase = {"type": "fixed_schedule", "auto_offset": True}
    return {
        "benchmark": {"model": model, "endpoint": about | headers, "dataset": dataset, "profiling": phase}
    }


def _command(config: Path, out: Path) -> list[str]:
    program = shutil.which("aiperf", path=str(Path(sys.executable).parent)) or shutil.which("aiperf")
    if program is None:
        raise BadInputError(f"aiperf is not installed. {EXTRA}")
    return [
        *(program, "profile", "--config", str(config), "--artifact-dir", str(out)),
        *("--export-level", "records", "--ui-type", "none", "--no-gpu-telemetry", "--no-server-metrics"),
    ]


def _run(command: list[str], seconds: float, key: str | None = None) -> list[Share]:
    """Run aiperf to its end, and return the shares of a core that its busiest process used."""
    with tempfile.TemporaryFile("w+") as log:
        environment = _environment(command, key)
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        used = _Usage(process.pid)
        try:
            status = process.wait(seconds + PATIENCE_S)
        except subprocess.TimeoutExpired:
            why = f"The server did not answer within {PATIENCE_S:.0f} s of the last request."
            raise FathomError(why) from None
        finally:
            used.done.set()
            _end(process)
        if status:
            log.seek(0)
            raise FathomError(f"aiperf failed: {without(key, _why(log.read()))}")
        return used.shares


def _environment(command: list[str], key: str | None) -> dict[str, str]:
    """Return aiperf's environment with the key, if any, without variables that bar a folder's tokenizer."""
    folder = "--tokenizer" in command and Path(command[command.index("--tokenizer") + 1]).is_dir()
    kept = {name: value for name, value in os.environ.items() if not (folder and name in _OFFLINE)}
    return kept | ({VARIABLE: key} if key else {})


def _end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.wait()


def _why(log: str) -> str:
    """Return the first reason in aiperf's last panel, whose lines are broken and framed."""
    lines = iter([line.strip(" │╭╰─╮╯") for line in log.splitlines()])
    reason = next((line for line in lines if line.startswith("Reason:")), "")
    rest = takewhile(lambda line: line and not line.startswith(("•", "Cause:")), lines)
    words = " ".join([reason.removeprefix("Reason:").strip(), *rest]).strip()
    return words[:MOST_WORDS] or "it printed no reason"


class _Usage:
    """Follows the processor time of a process and its children, in a thread."""

    def __init__(self, pid: int) -> None:
        self.shares: list[Share] = []
        self.done = threading.Event()
        threading.Thread(target=self._follow, args=(pid,), daemon=True).start()

    def _follow(self, pid: int) -> None:
        known: dict[int, psutil.Process] = {}
        while not self.done.wait(EVERY_S):
            try:
                root = psutil.Process(pid)
                tree = [known.setdefault(each.pid, each) for each in (root, *root.children(recursive=True))]
                self.shares.append((time.time_ns(), max(each.cpu_percent() for each in tree) / 100))
            except psutil.Error:
                continue


def busiest(shares: list[Share], sent: Sequence[Sent]) -> float | None:
    """Return the largest share while requests were under way: loading Python takes a core before them."""
    if not sent:
        return None
    first, last = min(request.start_ns for request in sent), max(request.end_ns for request in sent)
    # A share is of the time before its reading.
    within = [share for ns, share in shares if first + EVERY_S * NS_PER_S <= ns <= last]
    return max(within, default=None)


def read(file: Path, schedule: list[float] | None = None) -> list[Sent]:
    """Read aiperf's records (`profile_export.jsonl`), by time of sending; the schedule is in seconds.

    The schedule begins so that no request was sent before it was due. Raises BadInputError.
    """
    try:
        records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]
        kept = [r for r in records if r["metadata"].get("benchmark_phase") == "profiling"]
        sent = sorted((_sent(record) for record in kept), key=lambda s: s.start_ns)
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInputError(f"{file} has no records of aiperf; give its profile_export.jsonl.") from None
    if schedule is not None and len(schedule) == len(sent):
        due = [round(at * NS_PER_S) for at in sorted(schedule)]
        begin = min(s.start_ns - at for s, at in zip(sent, due, strict=True))
        for request, at in zip(sent, due, strict=True):
            request.scheduled_ns = begin + at
    return sent


def _sent(record: dict[str, Any]) -> Sent:
    about, metrics = record["metadata"], record.get("metrics") or {}
    start = int(about["request_start_ns"])
    first = _value(metrics, "time_to_first_token")
    return Sent(
        scheduled_ns=None,
        start_ns=start,
        end_ns=int(about["request_end_ns"]),
        first_ns=None if first is None else start + round(first * NS_PER_MS),
        intervals_ms=_value(metrics, "inter_chunk_latency") or [],
        tokens=_integer(metrics, "usage_completion_tokens"),
        prompt=_integer(metrics, "usage_prompt_tokens"),
        client_tokens=_integer(metrics, "output_sequence_length"),
        failed=bool(record.get("error")) or bool(about.get("was_cancelled")),
    )


def _value(metrics: dict[str, Any], name: str) -> Any:
    return (metrics.get(name) or {}).get("value")


def _integer(metrics: dict[str, Any], name: str) -> int | None:
    value = _value(metrics, name)
    return None if value is None else int(value)
