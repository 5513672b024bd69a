"""Analysis of jobs of 10, 100 and 1,000 ranks: time, peak memory, and whether the straggler is named.

    python -m benchmarks.ranks.scale [--ranks 10,100,1000] [--traces FOLDER] [--seed 1]

Each job is built by `job.py` from the eight DLRM ranks in `../shared/traces/dlrm` or FOLDER, one sounding per
host. Then `fathom merge` joins them and `fathom report` analyses them, both as fresh processes without the
cache. Memory is the largest sum of the resident memory of a command and its child processes. The straggler,
drawn from the seed, has to be named in the first OPENING lines of the report. Writes `results/ranks.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.ranks.job import Plan, build
from fathom.sounding import import_traces
from fathom.units import GIB, MIB

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "ranks.json"
TRACES = ROOT.parent / "shared" / "traces" / "dlrm"
OPENING = 6  # lines
MOST_BYTES = 2 * GIB
SAMPLE_S = 0.05


def run(command: Sequence[str]) -> tuple[float, int, str]:
    """Return seconds, peak bytes of the process and its children, and the output. Raises SystemExit."""
    environment = {**os.environ, "FATHOM_NO_CACHE": "1", "POLARS_MAX_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as output:
        start = time.perf_counter()
        child = subprocess.Popen([sys.executable, "-m", "fathom", *command], stdout=output, env=environment)
        peak = 0
        while child.poll() is None:
            peak = max(peak, _resident(child.pid))
            time.sleep(SAMPLE_S)
        seconds = time.perf_counter() - start
        output.seek(0)
        if child.returncode:
            sys.exit(f"fathom {' '.join(command)[:200]} failed")
        return seconds, peak, output.read()


def _resident(pid: int) -> int:
    total = 0
    try:
        process = psutil.Process(pid)
        every = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    for each in every:
        try:
            total += each.memory_info().rss
        except psutil.Error:
            continue
    return total


def measure(traces: Path, ranks: int, seed: int) -> dict[str, object]:
    """Build a job, merge its soundings, and report on them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        real = import_traces(sorted(traces.glob("*.json.gz")), folder / "real.fathom")
        straggler = random.Random(seed + ranks).randrange(ranks)
        nodes = build(real, Plan(ranks, straggler, seed=seed), folder)
        merged = str(folder / "job.fathom")
        merge_s, merge_peak, _ = run(["merge", *map(str, nodes), "-o", merged])
        report_s, report_peak, text = run(["report", merged])
        opening = [line for line in text.splitlines() if line.strip()][:OPENING]
    return {
        "ranks": ranks,
        "straggler": straggler,
        "named": any(f"Rank {straggler} on node-{straggler // 8} is late" in line for line in opening),
        "merge_s": round(merge_s, 2),
        "report_s": round(report_s, 2),
        "report_ms_per_rank": round(1000 * report_s / ranks, 1),
        "peak_mib": round(max(merge_peak, report_peak) / MIB),
        "opening": [line.strip() for line in opening],
    }


def main() -> None:
    """Measure each size and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="10,100,1000")
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for ranks in map(int, options.ranks.split(",")):
        rows.append(measure(options.traces, ranks, options.seed))
        print(json.dumps(rows[-1]), flush=True)
    met = all(row["named"] and int(str(row["peak_mib"])) * MIB <= MOST_BYTES for row in rows)
    machine = {"cpus": os.cpu_count(), "system": platform.platform(), "load": round(os.getloadavg()[0], 1)}
    options.out.write_text(json.dumps({"machine": machine, "met": met, "jobs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
