"""Run aiperf on a schedule of ours, and read the requests that it recorded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import psutil

from fathom.errors import BadInputError, FathomError
from fathom.load.results import Sent
from fathom.load.schedule import Workload, offsets, rows
from fathom.units import NS_PER_MS, NS_PER_S

EXTRA = "Install the load generator: pip install 'fathom-perf[serve]'."
EVERY_S = 0.5  # between readings of the generator's processor time
PATIENCE_S = 120.0  # to start, and to answer after the last request was due


def drive(url: str, model: str, load: Workload, tokenizer: str | None = None) -> tuple[list[Sent], float]:
    """Send the load; return the requests by time of sending, and the busiest process's share of a core.

    Raises FathomError if aiperf is missing or fails.
    """
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        schedule = folder / "schedule.jsonl"
        schedule.write_text("".join(json.dumps(row) + "\n" for row in rows(load)), encoding="utf-8")
        out = folder / "out"
        busiest = _run(_command(url, model, schedule, out, tokenizer), offsets(load)[-1])
        file = out / "profile_export.jsonl"
        if not file.is_file():
            raise FathomError(
                f"aiperf recorded no requests at {url}; check the address and the model's name."
            )
        return read(file, offsets(load) if load.turns == 1 else None), busiest


def _command(url: str, model: str, schedule: Path, out: Path, tokenizer: str | None) -> list[str]:
    program = shutil.which("aiperf", path=str(Path(sys.executable).parent)) or shutil.which("aiperf")
    if program is None:
        raise BadInputError(f"aiperf is not installed. {EXTRA}")
    counted = ["--tokenizer", tokenizer] if tokenizer else ["--use-server-token-count"]
    return [
        *(program, "profile", "--url", url, "--model", model, "--endpoint-type", "chat", "--streaming"),
        *("--input-file", str(schedule), "--custom-dataset-type", "mooncake_trace", "--fixed-schedule"),
        *("--artifact-dir", str(out), "--export-level", "records", "--ui-type", "none"),
        *("--no-gpu-telemetry", "--no-server-metrics", "--use-legacy-max-tokens", *counted),
    ]


def _run(command: list[str], seconds: float) -> float:
    """Run aiperf to its end, and return the largest share of a core that one of its processes used."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
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
            raise FathomError(f"aiperf failed: {_last(log.read())}")
        return used.busiest


def _end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.wait()


def _last(log: str) -> str:
    lines = [line.strip(" │╭╰─╮╯") for line in log.splitlines() if "Reason:" in line or "rror" in line]
    return lines[-1][:200] if lines else "it printed no reason"


class _Usage:
    """Follows the processor time of a process and its children, in a thread."""

    def __init__(self, pid: int) -> None:
        self.busiest, self.done = 0.0, threading.Event()
        threading.Thread(target=self._follow, args=(pid,), daemon=True).start()

    def _follow(self, pid: int) -> None:
        known: dict[int, psutil.Process] = {}
        while not self.done.wait(EVERY_S):
            try:
                root = psutil.Process(pid)
                for process in (root, *root.children(recursive=True)):
                    seen = known.setdefault(process.pid, process)
                    self.busiest = max(self.busiest, seen.cpu_percent() / 100)
            except psutil.Error:
                continue


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
