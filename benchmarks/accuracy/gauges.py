"""How far two measurements of this machine's ceilings in a row differ.

    python benchmarks/accuracy/gauges.py [--full] [--only ID,…] [--gpu N|all] [--data DIR] [--merge]

Runs `fathom machine measure` twice, each time with a separate store, and writes `results/gauges.json`: for
each ceiling both values, and their difference as a share of the larger. `--merge` keeps what an earlier run
(of other ceilings, or with other GPUs) wrote there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "benchmarks" / "results" / "gauges.json"
GOAL = 0.03


def measure(options: list[str]) -> dict[str, Any]:
    """The machine file of one run, with the seconds it took."""
    with tempfile.TemporaryDirectory() as home:
        path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "FATHOM_HOME": home, "PYTHONPATH": path}
        command = [sys.executable, "-m", "fathom", "machine", "measure", "--json", *options]
        started = time.monotonic()
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        return {**json.loads(done.stdout), "seconds": time.monotonic() - started}


def by_key(machine: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Ceilings by id, and device where they have one."""
    return {_key(ceiling): ceiling for ceiling in machine["ceilings"]}


def _key(result: dict[str, Any]) -> str:
    return result["id"] if result["device"] is None else f"{result['id']} GPU {result['device']}"


def compare(first: dict[str, Any], second: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """For each ceiling of both: the values, and how far apart they are."""
    items, others = by_key(first), by_key(second)
    return {
        name: {
            "values": [items[name]["value"], others[name]["value"]],
            "unit": items[name]["unit"],
            "difference": difference(items[name]["value"], others[name]["value"]),
            "at": [items[name]["at"], others[name]["at"]],
            "conditions": [items[name]["conditions"], others[name]["conditions"]],
            "flags": sorted({*items[name]["flags"], *others[name]["flags"]}),
        }
        for name in items
        if name in others
    }


def difference(item: float, other: float) -> float:
    """As a share of the larger."""
    return abs(item - other) / max(item, other)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--merge", action="store_true")
    chosen, options = parser.parse_known_args()
    first, second = measure(options), measure(options)
    rows = compare(first, second)
    if chosen.merge and RESULT.exists():
        rows = {**json.loads(RESULT.read_text())["ceilings"], **rows}
    result = {
        "gpus": [gpu["name"] for gpu in first["gpus"]],
        "processor": first["host"]["cpu"]["model"],
        "seconds": [first["seconds"], second["seconds"]],
        "missing": {_key(lack): lack["why"] for lack in second["missing"]},
        "ceilings": rows,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["difference"]):
        sign = " " if row["difference"] <= GOAL else "!"
        print(f"{sign} {name:36} {row['values'][0]:.4g} {row['unit']:7} {row['difference']:7.2%}")
    print(f"took {first['seconds']:.0f} s and {second['seconds']:.0f} s")


if __name__ == "__main__":
    main()
