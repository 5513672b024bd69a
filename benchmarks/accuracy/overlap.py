"""Total, overlapped and exposed communication: Fathom, TraceLens and its definition, HolisticTraceAnalysis.

    python -m benchmarks.accuracy.overlap TRACES --hta PYTHON --tracelens FOLDER [--json FILE]

All look at the whole trace, not at its steps. TraceLens is in no registry: `FOLDER` is a checkout of
AMD-AGI/TraceLens, and `PYTHON` runs its GPU timeline, of all kernels. Its documented definition is counted
from the raw events too: computation is the union of kernels that are not communication; exposed communication
is the union of communication minus that of computation. Its code counts memsets as computation as well:
`with_memsets_ms` is the difference to the definition with them. Names decide in both tools: `nccl` in
HolisticTraceAnalysis, `nccl` or `rccl` in TraceLens. So other libraries, such as symmetric memory in
b200-eager, count as computation there.

If a trace has several profiler steps, HolisticTraceAnalysis drops kernels whose launch is not in the trace,
because they were launched before it began. So Fathom's figures are given for the launched kernels too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
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
MEMSETS = ("gpu_memset", "Memset")
HTA = """
import sys, json, warnings; warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
from hta.utils.utils import get_kernel_type, merge_kernel_intervals
files = {0: sys.argv[1]}
trace = TraceAnalysis(trace_files=files, trace_dir="", include_last_profiler_step=True)
percent = trace.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].iloc[0]
names, frame = trace.t.symbol_table.get_sym_table(), trace.t.traces[0]
kinds = frame["name"].map(lambda name: get_kernel_type(names[name]))
def length(*wanted):
    merged = merge_kernel_intervals(frame[frame["stream"].ne(-1) & kinds.isin(wanted)].copy())
    return float((merged["end"] - merged["ts"]).sum()) / 1e3
total, either = length("COMMUNICATION"), length("COMMUNICATION", "COMPUTATION")
exposed = either - length("COMPUTATION")
figures = {"total": total, "overlapped": total - exposed, "exposed": exposed, "percent": float(percent)}
print(json.dumps(figures))
"""
TRACELENS = """
import sys, json
from TraceLens import TreePerfAnalyzer
timeline = TreePerfAnalyzer.from_file(sys.argv[1], include_unlinked_kernels=True).get_df_gpu_timeline()
ms = dict(zip(timeline["type"], timeline["time ms"]))
total, exposed = ms["total_comm_time"], ms["exposed_comm_time"]
print(json.dumps({"total": total, "overlapped": total - exposed, "exposed": exposed}))
"""


def by_fathom(path: Path, *, launched: bool = False) -> dict[str, float]:
    """Return milliseconds of communication in the whole trace, or of the kernels whose launch is in it."""
    with tempfile.TemporaryDirectory() as folder:
        store = import_traces([path], Path(folder) / "s.fathom")
        rank = store.ranks[0]
        tables = (store.table(name, rank).collect() for name in ("ops", "launches", "kernels"))
        ops, calls, kernels = tables
        device = kernels.filter(kernels["kind"] == "collective")["device"].mode().first()
        kernels = kernels.filter(device=device)
        if launched:
            kernels = kernels.join(calls, on="correlation", how="semi")
        total = of_rows(collectives_of(kernels, connect(ops, calls, kernels), ops))
        hidden = intersect(total, of_rows(kernels.filter(kind="compute"))).length
    return {"total": total.length / 1e6, "overlapped": hidden / 1e6, "exposed": (total.length - hidden) / 1e6}


def by_definition(path: Path, counted: tuple[str, ...] = KERNELS) -> dict[str, float]:
    """Return the same by TraceLens's definition, in one sweep over the raw events of the busiest device."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    kernels = [event for event in events if event.get("ph") == "X" and event.get("cat") in counted]
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


def by_tool(python: str, script: str, path: Path, checkout: Path | None = None) -> dict[str, float] | str:
    """Return the figures that a script of another tool prints for a trace, or its error."""
    places = {"PYTHONPATH": str(checkout)} if checkout else {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"{path.name.split('.')[0]}.json"
        copy.write_bytes(gzip.decompress(path.read_bytes()))
        command = [python, "-c", script, str(copy)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **places}
        )
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["?"])[-1]
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def compared(path: Path, python: str | None, tracelens: Path | None) -> dict[str, Any] | None:
    """Return the figures of one trace; None if none of its kernels are named as communication."""
    try:
        defined = by_definition(path)
    except ValueError:
        return None
    own = by_fathom(path)
    row: dict[str, Any] = {"trace": name_of(path), "fathom": own, "definition": defined}
    row["largest_difference_ms"] = largest_difference(own, defined)
    if python and tracelens:
        row["tracelens"] = timeline = by_tool(python, TRACELENS, path, tracelens)
        if isinstance(timeline, dict):
            counted = by_definition(path, KERNELS + MEMSETS)
            row["largest_difference_to_tracelens_ms"] = largest_difference(own, timeline)
            row["with_memsets_ms"] = largest_difference(counted, timeline)
    if python:
        row["hta"] = theirs = by_tool(python, HTA, path)
        if isinstance(theirs, dict):
            row["fathom_launched"] = launched = by_fathom(path, launched=True)
            row["largest_difference_to_hta_ms"] = largest_difference(launched, theirs)
    return row


def name_of(path: Path) -> str:
    """Return the name of a trace: `mi300-resnet`, or `dlrm/rank-0`."""
    file = path.name.split(".")[0]
    return f"{path.parent.name}/{file}" if file.startswith("rank-") else file


def largest_difference(own: dict[str, float], other: dict[str, float]) -> float:
    """Return the largest difference between two sets of figures in ms."""
    return max(abs(own[name] - other[name]) for name in own)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", type=Path)
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument(
        "--tracelens", type=Path, help="a checkout of AMD-AGI/TraceLens, which that Python runs"
    )
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.tracelens and not options.hta:
        parser.error("--tracelens needs --hta, the Python that runs it")
    paths = sorted(options.traces.glob("*.json.gz")) + sorted(options.traces.glob("*/rank-0.json.gz"))
    rows = [row for path in paths if (row := compared(path, options.hta, options.tracelens))]
    options.json.write_text(json.dumps({"traces": rows}, indent=1) + "\n")
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
