"""How fast a trace is imported and accounted for, against HolisticTraceAnalysis, and how both grow with it.

    python benchmarks/cost/import_speed.py [--trace TRACE] [--hta PYTHON] [--rounds 10] [--repeat 20]

Every run is a fresh process whose imports are not counted. Fathom (`import_traces`, and the ledger by
`analysis.account_of`) and HolisticTraceAnalysis (load and `get_temporal_breakdown`) take turns. `--hta`, or
FATHOM_HTA_PYTHON, names a Python that has the latter; else this one is asked. Then the trace is written
`--repeat` times into one file, with times and ids moved on, to see how time and memory grow. Writes
`results/import_speed.json`. Linux only.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from isal import igzip

from fathom.sounding.kineto.stream import scan

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
TRACE = ROOT.parent / "shared" / "traces" / "h100-owlv2.json.gz"
BAR = {"ratio": 6.0, "mib": 250.0}
_MOVED = re.compile(
    rb'("ts"\s*:\s*)(\d+)((?:\.\d+)?)|("(?:correlation|External id|id)"\s*:\s*)(\d+)|(ProfilerStep#)(\d+)'
)
_SPAN = re.compile(rb'"ts"\s*:\s*(\d+(?:\.\d+)?)\s*,\s*"dur"\s*:\s*(\d+(?:\.\d+)?)')
_ID = re.compile(rb'"(?:correlation|External id)"\s*:\s*(\d+)')

# The work of each side in its process; `clock()` and `peak()` come from the frame below.
FATHOM = """
from pathlib import Path
import numpy.ma  # which polars imports with the first array it is given, as pandas does on the other side
from fathom import analysis
from fathom.sounding import import_traces
start = clock()
store = import_traces([Path(trace)], Path(folder) / "t.fathom")
imported = clock()
met = analysis.meetings(store)
for rank in store.ranks:
    analysis.account_of(store, rank, store.machine, met.of.get(rank))
parts = {"import_s": imported - start, "ledger_s": clock() - imported}
"""
HTA = """
import logging
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
start = clock()
analysis = TraceAnalysis(trace_files={0: trace}, trace_dir=folder)
loaded = clock()
analysis.get_temporal_breakdown(visualize=False)
parts = {"load_s": loaded - start, "breakdown_s": clock() - loaded}
"""
FRAME = r"""
import json, re, sys
from time import perf_counter as clock
trace, folder = sys.argv[1:]
{work}
peak = int(re.search(r"VmHWM:\s*(\d+)", open("/proc/self/status").read())[1]) / 1024  # of this process alone
print(json.dumps({{**parts, "total_s": sum(parts.values()), "peak_mib": peak}}))
"""


@dataclass(frozen=True)
class Side:
    """A side of the measurement: a Python and its work."""

    name: str
    python: str
    work: str

    def run(self, trace: Path) -> dict[str, float]:
        """Times in seconds and peak memory in MiB of one process."""
        with tempfile.TemporaryDirectory() as folder:
            command = [self.python, "-c", FRAME.format(work=self.work), str(trace), folder]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{self.name} failed on {trace.name}:\n{done.stderr[-2000:]}")
        document: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return document


def find_hta(python: str | None) -> Side | None:
    """The Python that has HolisticTraceAnalysis, if one is given or is this one."""
    python = python or os.environ.get("FATHOM_HTA_PYTHON")
    if python is None and importlib.util.find_spec("hta") is not None:
        python = sys.executable
    return Side("HolisticTraceAnalysis", python, HTA) if python else None


def in_turns(sides: list[Side], trace: Path, rounds: int) -> dict[str, list[dict[str, float]]]:
    """A B, B A, A B …; the first run of each, which finds cold files, is not kept."""
    runs: dict[str, list[dict[str, float]]] = {side.name: [] for side in sides}
    for turn in range(rounds + 1):
        for side in sides if turn % 2 else sides[::-1]:
            result = side.run(trace)
            if turn:
                runs[side.name].append(result)
                print(
                    f"{turn:3} {side.name:22} {result['total_s']:.3f} s {result['peak_mib']:.0f} MiB",
                    flush=True,
                )
    return runs


def summary(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Median, lowest and highest of every figure."""
    return {
        key: {
            "median": statistics.median(values),
            "lowest": min(values),
            "highest": max(values),
        }
        for key in runs[0]
        for values in [[run[key] for run in runs]]
    }


def repeated(trace: Path, times: int, target: Path) -> Path:
    """`trace` written `times` times into one file; times, ids and steps go on where they ended before."""
    text = igzip.decompress(trace.read_bytes())
    opening = re.search(rb'"traceEvents"\s*:\s*\[', text)
    if opening is None:
        sys.exit(f"{trace} is no trace with a head")
    events = text[opening.end() :]
    end = scan(events).closed
    events, tail = events[:end], events[end:]
    spans = [(Decimal(ts.decode()), Decimal(dur.decode())) for ts, dur in _SPAN.findall(events)]
    length = int(max(ts + dur for ts, dur in spans) - min(ts for ts, _ in spans)) + 1000
    ids = max(map(int, _ID.findall(events))) + 1
    with igzip.open(target, "wb", compresslevel=1) as file:
        file.write(text[: opening.end()])
        for turn in range(times):
            file.write(b"," * (turn > 0))
            file.write(moved(events, turn * length, turn * ids, turn))
        file.write(tail)
    return target


def moved(events: bytes, by_us: int, by_id: int, steps: int) -> bytes:
    """The events `by_us` microseconds later, with ids and step numbers moved on."""

    def move(result: re.Match[bytes]) -> bytes:
        time, total, part, key, number, step, count = result.groups()
        if time:
            return b"%b%d%b" % (time, int(total) + by_us, part)
        return b"%b%d" % (key, int(number) + by_id) if key else b"%b%d" % (step, int(count) + steps)

    return _MOVED.sub(move, events) if steps else events


def growth(fathom: Side, trace: Path, times: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Fathom's figures on the trace repeated 1, a quarter of `times`, and `times` times."""
    with tempfile.TemporaryDirectory() as folder:
        for factor in sorted({1, max(1, times // 4), times}):
            large = repeated(trace, factor, Path(folder) / f"{factor}.json.gz")
            result = summary([fathom.run(large) for _ in range(rounds)])
            print(
                f"x{factor}: {result['total_s']['median']:.2f} s, {result['peak_mib']['median']:.0f} MiB",
                flush=True,
            )
            yield {"repeat": factor, **result}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Everything, as it is written to the results."""
    fathom, hta = Side("Fathom", sys.executable, FATHOM), find_hta(options.hta)
    runs = in_turns([fathom, *([hta] if hta else [])], options.trace, options.rounds)
    result: dict[str, Any] = {
        "trace": options.trace.name,
        "machine": {"cpu": cpu(), "cores": os.cpu_count(), "python": platform.python_version()},
        "rounds": options.rounds,
        "bar": BAR,
        "sides": {name: summary(actual) for name, actual in runs.items()},
        "runs": runs,
    }
    if hta:
        pairs = zip(runs[hta.name], runs[fathom.name], strict=True)
        result["ratio"] = summary([{"total": theirs["total_s"] / ours["total_s"]} for theirs, ours in pairs])[
            "total"
        ]
    if options.repeat > 1:
        result["growth"] = list(growth(fathom, options.trace, options.repeat, min(3, options.rounds)))
    return result


def cpu() -> str:
    """The processor's name."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    match = re.search(r"model name\s*: (.*)", text)
    return match[1] if match else platform.processor()


def reported(result: dict[str, Any]) -> str:
    """The result in a few lines."""
    lines = [
        f"{name}: {actual['total_s']['median']:.3f} s ({actual['total_s']['lowest']:.3f} to "
        f"{actual['total_s']['highest']:.3f}), {actual['peak_mib']['highest']:.0f} MiB"
        for name, actual in result["sides"].items()
    ]
    if "ratio" in result:
        ratio = result["ratio"]
        lines.append(f"{ratio['median']:.1f} times as fast ({ratio['lowest']:.1f} to {ratio['highest']:.1f})")
    else:
        lines.append("not compared: no Python with HolisticTraceAnalysis (--hta, FATHOM_HTA_PYTHON)")
    for step in result.get("growth", []):
        lines.append(
            f"x{step['repeat']}: {step['total_s']['median'] / step['repeat']:.3f} s and "
            f"{step['peak_mib']['median'] / step['repeat']:.0f} MiB for each repetition"
        )
    return "\n".join(lines)


def bench(arguments: list[str] | None = None) -> str:
    """Measure, write the results, and tell them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis 0.5.0")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=20)
    options = parser.parse_args(arguments or [])
    if not options.trace.exists():
        return f"skipped: {options.trace} is not here"
    result = measure(options)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "import_speed.json").write_text(json.dumps(result, indent=1) + "\n")
    return reported(result)


if __name__ == "__main__":
    print(bench(sys.argv[1:]))
