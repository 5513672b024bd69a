"""Cost of a report, against HolisticTraceAnalysis' and TraceLens' breakdown of the same trace.

    python -m benchmarks.cost.report_speed [--rounds 7] [--venv FOLDER] [--tracelens FOLDER] [--alone]

Every run is a fresh process, imports included; sides take turns. Modules are compiled before the first run
that counts, as `pip install` does it, whatever PYTHONDONTWRITEBYTECODE says. CPU seconds are user and system
time of the process and its children, memory is its peak. Fathom runs without its cache, then again with
it. HTA is installed into `--venv` by pip where it is missing; AMD's TraceLens is measured from a checkout of
AMD-AGI/TraceLens (PyPI's `tracelens` is another project), with orjson, which makes its parsing faster.
`--alone` leaves both out. Measure on a quiet machine. Writes `results/report_speed.json`. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "report_speed.json"
TRACE = ROOT.parent / "shared" / "traces" / "h100-owlv2.json.gz"
EXAMPLES = ROOT / "examples" / "soundings"
HOLISTIC, TRACELENS_NAME, PARSER = "HolisticTraceAnalysis==0.5.0", "TraceLens", "orjson"
COUNTERS = EXAMPLES / "train_gpt-counters-h200.fathom.zip"
BARS = {  # CPU seconds
    "import and report": 1.2,
    "report of train_gpt-h200": 0.7,
    "report of train_gpt-counters-h200": 0.7,
    "kernel of train_gpt-counters-h200": 0.7,
    "help": 0.15,
}
MIB = 200.0
HTA = """
import logging, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=sys.argv[2])
found.get_temporal_breakdown(visualize=False)
found.get_gpu_kernel_breakdown(visualize=False)
"""
TRACELENS = """
import sys
from TraceLens import TreePerfAnalyzer
found = TreePerfAnalyzer.from_file(profile_filepath=sys.argv[1])
found.get_df_gpu_timeline()
found.get_df_kernel_launchers_summary(found.get_df_kernel_launchers())
"""
Row = dict[str, float]


def run(commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> Row:
    """CPU and wall seconds of the commands together, and the largest peak in MiB. Raises SystemExit."""
    row = {"cpu_s": 0.0, "wall_s": 0.0, "peak_mib": 0.0}
    for command in commands:
        start = time.perf_counter()
        child = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        assert child.stderr is not None
        said = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"{' '.join(command)[:200]} failed:\n{said.decode(errors='replace')[-2000:]}")
        row["wall_s"] += time.perf_counter() - start
        row["cpu_s"] += usage.ru_utime + usage.ru_stime
        row["peak_mib"] = max(row["peak_mib"], usage.ru_maxrss / 1024)
    return row


def fathom_sides(trace: Path, folder: Path) -> dict[str, list[list[str]]]:
    """Commands of each measurement of Fathom."""
    fathom, sounding = [sys.executable, "-m", "fathom"], str(folder / "t.fathom")
    made = [*fathom, "import", str(trace), "-o", sounding]
    sides = {"import and report": [made, [*fathom, "report", sounding]], "help": [[*fathom, "--help"]]}
    for packed in sorted(EXAMPLES.glob("*.fathom.zip")):
        sides[f"report of {packed.name.removesuffix('.fathom.zip')}"] = [[*fathom, "report", str(packed)]]
    sides["kernel of train_gpt-counters-h200"] = [[*fathom, "kernel", str(COUNTERS)]]
    return sides


def compiled(folder: Path) -> dict[str, str]:
    """Variables that let Python keep the modules that it compiles, in `folder`."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def other_sides(trace: Path, folder: Path, where: Path, tracelens: Path | None) -> dict[str, list[list[str]]]:
    """Commands of the other tools; what they need is installed into `where` unless it is there."""
    python = where / "bin" / "python"
    if not python.exists():
        venv.create(where, with_pip=True)
    listed = subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True)
    missing = [name for name in (HOLISTIC, PARSER) if name.lower() not in listed.stdout.lower()]
    if missing:
        subprocess.run([python, "-m", "pip", "install", "-q", *missing], check=True)
    arguments = [str(trace), str(folder)]
    sides = {HOLISTIC: [[str(python), "-c", HTA, *arguments]]}
    if tracelens:
        path = f"PYTHONPATH={tracelens.resolve()}"
        sides[TRACELENS_NAME] = [["env", path, str(python), "-c", TRACELENS, *arguments]]
    return sides


def measure(sides: Mapping[str, list[list[str]]], rounds: int, folder: Path) -> dict[str, list[Row]]:
    """The sides in turns; the first round, which finds cold files, is not kept."""
    by_name: dict[str, list[Row]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name, commands in sides.items():
            subprocess.run(["rm", "-rf", str(folder / "t.fathom")], check=True)
            row = run(commands, {"FATHOM_NO_CACHE": "1", **compiled(folder)})
            if turn:
                by_name[name].append(row)
                print(f"{turn:3} {name:32} {row['cpu_s']:.2f} s CPU {row['peak_mib']:.0f} MiB", flush=True)
    return by_name


def kept(rounds: int, folder: Path) -> list[Row]:
    """The report of an example that was examined before."""
    packed = EXAMPLES / "train_gpt-h200.fathom.zip"
    command = [sys.executable, "-m", "fathom", "report", str(packed)]
    cache = {"FATHOM_CACHE_DIR": str(folder / "cache"), "FATHOM_NO_CACHE": "", **compiled(folder)}
    run([command], cache)
    return [run([command], cache) for _ in range(rounds)]


def summary(runs: Mapping[str, list[Row]]) -> dict[str, Any]:
    """Medians, the least CPU seconds, and whether the median meets each bar."""
    medians = {
        name: {what: statistics.median(row[what] for row in rows) for what in rows[0]}
        for name, rows in runs.items()
    }
    bars = {
        name: {
            "bar_cpu_s": bar,
            "cpu_s": medians[name]["cpu_s"],
            "least_cpu_s": min(row["cpu_s"] for row in runs[name]),
            "met": medians[name]["cpu_s"] <= bar,
        }
        for name, bar in BARS.items()
        if name in medians
    }
    peak = medians["import and report"]["peak_mib"]
    return {"median": medians, "bars": bars, "peak_mib": peak, "peak_met": peak <= MIB}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--venv", type=Path, default=Path(tempfile.gettempdir()) / "fathom-bench-venv")
    parser.add_argument("--tracelens", type=Path, help="a checkout of AMD-AGI/TraceLens")
    parser.add_argument("--alone", action="store_true", help="leave the other tools out")
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sides = fathom_sides(options.trace, folder)
        if not options.alone:
            sides |= other_sides(options.trace, folder, options.venv, options.tracelens)
        runs = measure(sides, options.rounds, folder)
        runs["report from the cache"] = kept(options.rounds, folder)
    load = os.getloadavg()[0]
    machine = {"cpus": os.cpu_count(), "system": platform.platform(), "load_at_the_end": round(load, 2)}
    result = {"trace": options.trace.name, "machine": machine, **summary(runs), "runs": runs}
    options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({"bars": result["bars"], "peak_mib": result["peak_mib"]}, indent=1))
    print("children's peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, "MiB")


if __name__ == "__main__":
    main()
