"""Plans of recorded programs from the machine file alone, with the host's measured pace and without it.

python -m benchmarks.plan.pace OUT [--device cuda] [--only PROGRAM …] [--write]   # 7 min on two quiet cores
python -m benchmarks.plan.pace OUT --home STORE   # with the ceilings in this store of Fathom

Measures this machine, records each program of `paced.py` and the GPT of the examples, and compares the
plan with the recorded clean step. `--write` keeps the rows in benchmarks/results/pace.json, by device. The
thread's time of a step is that of an unrecorded run: on a busy machine, it is the step without other load.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "benchmarks" / "results" / "pace.json"
GPT = "train_gpt"
LONGEST = 300.0  # seconds of one command


def run(words: list[str], home: Path) -> str:
    """Run a command of Fathom or Python with its own store, and return its output."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "FATHOM_HOME": str(home), "PYTHONPATH": path}
    command = [sys.executable, *words]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, check=True, timeout=LONGEST, cwd=ROOT
    )
    return done.stdout.decode()


def program(name: str, device: str) -> list[str]:
    """Return the words that run a program."""
    if name == GPT:
        return ["examples/train_gpt.py", "--device", device]
    return ["-m", "benchmarks.plan.paced", name, "--device", device]


def row(name: str, device: str, out: Path, home: Path) -> dict[str, Any]:
    """Record a program, and return its plans beside the recorded step."""
    import fathom
    from fathom.analysis import operators_of
    from fathom.planner.training import check_recorded

    words, sounding = program(name, device), out / f"{name}-{device}.fathom"
    options = ["-q", "--no-measure", "--replace", "--stop-after", "-o", str(sounding)]
    run(["-m", "fathom", "run", *options, "--", sys.executable, *words], home)
    opened = fathom.open(sounding)
    examination, store = opened.examine(), opened.store
    before = check_recorded(examination, store.machine)
    checked = check_recorded(examination, store.machine, operators_of(store, store.ranks[0]))
    recorded = sum(entry.recorded_ms for entry in checked.entries)
    planned, earlier = (sum(entry.planned_ms for entry in plan.entries) for plan in (checked, before))
    alone = thread(words, out, home) if name != GPT and device == "cpu" else {}
    return {
        "program": name,
        "planned_ms": round(planned, 3),
        "without_pace_ms": round(earlier, 3),
        "recorded_ms": round(recorded, 3),
        "error": round(planned / recorded - 1, 3),
        "error_without_pace": round(earlier / recorded - 1, 3),
        "entries": {
            entry.name: [round(entry.planned_ms, 3), round(entry.recorded_ms, 3)] for entry in checked.entries
        },
        **alone,
        "load": round(os.getloadavg()[0], 1),
    }


def thread(words: list[str], out: Path, home: Path) -> dict[str, float]:
    """Return the unrecorded step in milliseconds: medians by the wall and by the thread."""
    path = out / "times.json"
    run([*words, "--steps", "400", "--times", str(path)], home)
    wall, own = np.median(np.array(json.loads(path.read_text()))[50:], axis=0) * 1e3
    return {"unrecorded_ms": round(float(wall), 3), "thread_ms": round(float(own), 3)}


def paces_of(sounding: Path) -> dict[str, Any]:
    """Return the paces that a recording's machine file has: value, quartiles, and conditions."""
    import fathom

    ceilings = fathom.open(sounding).store.machine.get("ceilings", [])
    known = [c for c in ceilings if "pace." in c["id"]]
    return {c["id"]: [c["value"], c["low"], c["high"], c["at"], c["conditions"]] for c in known}


def main() -> None:
    """Measure, record and compare; print one line for each program."""
    from benchmarks.plan.paced import PROGRAMS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="*", default=[*PROGRAMS, GPT])
    parser.add_argument("--home", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    home = options.home or out / "home"
    if not options.home:
        run(["-m", "fathom", "machine", "measure", "--json"], home)
    rows = []
    for name in options.only:
        rows.append(row(name, options.device, out, home.resolve()))
        print(json.dumps(rows[-1]), flush=True)
    paces = paces_of(out / f"{options.only[0]}-{options.device}.fathom")
    print(json.dumps(paces))
    if options.write:
        known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        known[options.device] = {"cores": len(os.sched_getaffinity(0)), "paces": paces, "rows": rows}
        RESULT.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
