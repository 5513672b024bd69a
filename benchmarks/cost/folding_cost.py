"""CPU time of folding an example's counters, of `fathom kernel`, and of a query that reads the stored table.

    python -m benchmarks.cost.folding_cost [SOUNDING] [--runs 5] [--out RESULT.json] [--source OTHER/src]

Each run is a separate process; CPU time is user and system time of the process and its threads. `fold` is
folding alone, within its process; the others are whole commands. `--source` measures another checkout's
code, as far as it has the same commands. The load average says how much else ran: a busy machine inflates
CPU time too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parents[2]
EXAMPLE = HERE / "examples" / "soundings" / "train_gpt-counters-h200.fathom.zip"
FOLD = """
import sys, time
from fathom.analysis import folding
from fathom.sounding import open_store
fold = getattr(folding, "fold_rank", folding.counters_of)
store = open_store(sys.argv[1])
begin = time.process_time()
fold(store, store.ranks[0])
print(time.process_time() - begin)
"""


def commands(sounding: str) -> dict[str, tuple[list[str], dict[str, str]]]:
    """The measurements by name: arguments of Python, and variables besides the usual."""
    kernel = ["-m", "fathom", "kernel", sounding]
    count = ["-m", "fathom", "query", sounding, "SELECT count(*) AS n FROM counters"]
    return {
        "fold": (["-c", FOLD, sounding], {"FATHOM_NO_CACHE": "1"}),
        "kernel, first time": (kernel, {"FATHOM_NO_CACHE": "1"}),
        "kernel, again": (kernel, {}),
        "query counters": (count, {"FATHOM_NO_CACHE": "1"}),
    }


def cpu_seconds(arguments: list[str], environment: dict[str, str]) -> float:
    """Of one process; what it prints as a number on its own, else all that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if arguments[0] == "-c":
        return float(done.stdout.split()[-1])
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(sounding: Path, runs: int, source: Path) -> dict[str, object]:
    """Median, least and most CPU seconds of each, over so many runs after one that warms the disk's cache."""
    result = {}
    with tempfile.TemporaryDirectory() as cache:
        usual = os.environ | {"PYTHONPATH": str(source), "FATHOM_CACHE_DIR": cache}
        for name, (arguments, more) in commands(str(sounding)).items():
            taken = [cpu_seconds(arguments, usual | more) for _ in range(runs + 1)][1:]
            result[name] = {"median_s": median(taken), "least_s": min(taken), "most_s": max(taken)}
    return {"runs": runs, "cores": os.cpu_count(), "load": os.getloadavg(), "cpu": result}


def main() -> None:
    """Measure, print, and keep with --out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sounding", type=Path, nargs="?", default=EXAMPLE)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--source", type=Path, default=HERE / "src")
    options = parser.parse_args()
    result = {"sounding": options.sounding.name} | measure(options.sounding, options.runs, options.source)
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
