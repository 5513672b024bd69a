"""Total, overlapped and exposed communication: Fathom, HolisticTraceAnalysis, and TraceLens's definition.

    python -m benchmarks.accuracy.overlap TRACES [--hta PYTHON] [--json FILE]

All three look at the whole trace, not at its steps. TraceLens is in no registry, so its documented definition
is counted from the raw events: computation is the union of kernels that are not communication; exposed
communication is the union of communication minus that of computation. Names decide in both tools: `nccl` in
HolisticTraceAnalysis, `nccl` or `rccl` in TraceLens. So other libraries, such as symmetric memory in
b200-eager, count as computation there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from fathom.analysis.communication import collectives_of
from fathom.analysis.intervals import intersect, of_rows
from fathom.analysis.work import connect
from fathom.sounding import import_traces

RESULTS = Path(__file__).resolve().parents[1] / "results" / "overlap.json"
NAMED = ("nccl", "rccl")
KERNELS = ("kernel", "Kernel")
HTA = """
import sys, json, warnings; warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
files = {int(sys.argv[2]): sys.argv[1]}
trace = TraceAnalysis(trace_files=files, trace_dir="", include_last_profiler_step=True)
frame = trace.get_comm_comp_overlap(visualize=False)
print(json.dumps(float(frame["comp_comm_overlap_pctg"].iloc[0])))
"""


def by_fathom(path: Path) -> dict[str, float]:
    """Return milliseconds of communication in the whole trace: total, overlapped, exposed."""
    with tempfile.TemporaryDirectory() as folder:
        store = import_traces([path], Path(folder) / "s.fathom")
        rank = store.ranks[0]
        tables = (store.table(name, rank).collect() for name in ("ops", "launches", "kernels"))
        ops, calls, kernels = tables
        device = kernels.filter(kernels["kind"] == "collective")["device"].mode().first()
        kernels = kernels.filter(device=device)
        total = of_rows(collectives_of(kernels, connect(ops, calls, kernels), ops))
        hidden = intersect(total, of_rows(kernels.filter(kind="compute"))).length
    return {"total": total.length / 1e6, "overlapped": hidden / 1e6, "exposed": (total.length - hidden) / 1e6}


def by_definition(path: Path) -> dict[str, float]:
    """Return the same by TraceLens's definition, in one sweep over the raw events of the busiest device."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    kernels = [event for event in events if event.get("ph") == "X" and event.get("cat") in KERNELS]
    named = [event for event in kernels if any(name in event["name"].lower() for name in NAMED)]
    devices = [event["args"].get("device", event["pid"]) for event in named]
    device = max(set(devices), key=devices.count)
    edges: list[tuple[int, int, int]] = []
    for event in kernels:
        if event["args"].get("device", event["pid"]) == device:
            start, kind = round(event["ts"] * 1000), int(any(name in event["name"].lower() for name in NAMED))
            edges += [(start, 1, kind), (start + round(event["dur"] * 1000), -1, kind)]
    running, sums, before = [0, 0], [0, 0], 0
    for time, change, kind in sorted(edges):
        if running[1]:
            sums[int(running[0] > 0)] += time - before
        running[kind] += change
        before = time
    exposed, hidden = sums
    return {"total": (exposed + hidden) / 1e6, "overlapped": hidden / 1e6, "exposed": exposed / 1e6}


def by_hta(python: str, path: Path, rank: int) -> float | str:
    """Return the overlap in percent by HolisticTraceAnalysis, or its error."""
    with tempfile.TemporaryDirectory() as folder:
        text = gzip.decompress(path.read_bytes())
        copy = Path(folder) / f"{path.name.split('.')[0]}.json"
        copy.write_bytes(text)
        done = subprocess.run(
            [python, "-c", HTA, str(copy), str(rank)], capture_output=True, text=True, check=False
        )
    lines = done.stdout.strip().splitlines()
    return (
        float(lines[-1]) if not done.returncode and lines else (done.stderr.strip().splitlines() or ["?"])[-1]
    )


def compared(path: Path, hta: str | None) -> dict[str, Any] | None:
    """Return the figures of one trace; None if none of its kernels are named as communication."""
    try:
        defined = by_definition(path)
    except ValueError:
        return None
    own = by_fathom(path)
    row: dict[str, Any] = {"trace": path.name.split(".")[0], "fathom": own, "definition": defined}
    row["largest_difference_ms"] = max(abs(own[name] - defined[name]) for name in own)
    row["fathom_overlap_percent"] = 100 * own["overlapped"] / own["total"]
    if hta:
        row["hta_overlap_percent"] = by_hta(hta, path, 0)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", type=Path)
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    paths = sorted(options.traces.glob("*.json.gz")) + sorted(options.traces.glob("*/rank-0.json.gz"))
    rows = [row for path in paths if (row := compared(path, options.hta))]
    options.json.write_text(json.dumps({"traces": rows}, indent=1) + "\n")
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
