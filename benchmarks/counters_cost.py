"""What sampling counters costs: steps inside bursts against clean steps, and memory over minutes of bursts.

    python benchmarks/counters_cost.py steps train_gpt --pairs 10 --out out/counters -- --steps 600
    python benchmarks/counters_cost.py memory train_gpt --seconds 120 --out out/counters -- --steps 6000
    python benchmarks/counters_cost.py summary out/counters

A pair is one recording: its clean steps by device events, its steps inside bursts by the boundaries of the
traced kernels, so that neither is a step of the host. `memory` records with as many rounds of bursts as fit
the time. Both need counters that are qualified (`fathom machine measure --only counters`), and no table
library, so that they run on any target; `summary` needs one. What follows `--` goes to the program.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from cost import cost_of
from cost_commands import add_folder, append, device_name, keep, lines, run
from launcher import execute, pinned, script, under_fathom

HOST = -1  # the telemetry's device
SETTLED_SHARE = 0.2  # of the samples of memory, before which caches and pools still grow


def record(options: argparse.Namespace, name: str) -> Path:
    """Record the program; returns the recording, still raw. Stops on a failure."""
    options.out.mkdir(parents=True, exist_ok=True)
    folder = options.out / f"{name}.fathom"
    shutil.rmtree(folder, ignore_errors=True)
    program = [sys.executable, str(script(options.program)), *options.arguments]
    log = options.out / "log.txt"
    command = under_fathom(program, folder, ["--depth", "counters", "--no-measure"])
    if execute(pinned(command, options.cores), log).status:
        sys.exit(f"{options.program} failed: see {log}")
    return folder


def steps(options: argparse.Namespace) -> None:
    """Record the pairs, each into the output folder, with one line a pair in its `pairs.jsonl`."""
    for number in range(options.pairs):
        folder = record(options, f"{options.program}-{number}")
        row = {"program": options.program, "depth": "counters", "pair": number, "device": device_name()}
        append(options.out / "pairs.jsonl", row | {"recording": folder.name})


def measured(row: dict[str, Any], out: Path) -> dict[str, Any]:
    """The pair with its figures: medians of its clean steps and of its steps inside bursts."""
    from fathom.sounding import import_raw

    store = import_raw(out / row["recording"])
    clean, burst = clean_ns(store), burst_ns(store)
    if not len(clean) or not len(burst):
        sys.exit(f"{row['recording']}: no clean steps or none with counters: {store.manifest.abstained}")
    plain, sampled = float(np.median(clean)), float(np.median(burst))
    figures = {"untouched_ms": plain / 1e6, "recorded_ms": sampled / 1e6, "ratio": sampled / plain}
    return row | figures | {"steps": len(burst)}


def clean_ns(store: Any) -> np.ndarray:
    """Lengths of the clean steps before any profiler ran, by device events."""
    rows = store.table("steps", 0).filter(phase="clean").collect()
    first = rows.filter(rows["burst"] == rows["burst"].min()).drop_nulls(["device_ns", "device_end_ns"])
    return (first["device_end_ns"] - first["device_ns"]).to_numpy()


def burst_ns(store: Any) -> np.ndarray:
    """Lengths of the steps inside bursts but the first of each, which begins with an empty queue."""
    from fathom.analysis.device import device_work
    from fathom.analysis.recording import read_timeline
    from fathom.analysis.windows import Boundary, make_windows

    timeline = read_timeline(store, 0, "counters")
    if not timeline.devices:
        return np.zeros(0)
    work = device_work(timeline.kernels.filter(device=timeline.devices[0]))
    windows = make_windows(timeline.steps, Boundary.of(work))
    first = np.append(True, windows.bursts[1:] != windows.bursts[:-1])[: len(windows.bursts)]
    return (windows.ends - windows.starts)[~first]


def memory(options: argparse.Namespace) -> None:
    """Resident memory of the program while bursts go on, by how much more than before they began it is at
    most, and its slope in bytes a second."""
    rounds = many_rounds(10_000)
    try:
        folder = record(options, f"{options.program}-memory")
    finally:
        rounds()
    rows = [row for row in lines(folder / "raw" / "telemetry.jsonl") if row.get("device") == HOST]
    whole = [(row["time_ns"], row["memory_bytes"]) for row in rows if row.get("memory_bytes")]
    known = whole[int(SETTLED_SHARE * len(whole)) :]
    if not known or known[-1][0] - known[0][0] < 1e9 * options.seconds * (1 - SETTLED_SHARE):
        sys.exit(f"the program ended before {options.seconds} s of bursts; give it more steps after --")
    times, held = np.array(known, float).T
    slope, _ = np.polyfit((times - times[0]) / 1e9, held, 1)
    row = {"program": options.program, "device": device_name(), "seconds": (times[-1] - times[0]) / 1e9}
    row |= {"peak_bytes": int(held.max()), "first_bytes": int(held[0]), "slope_bytes_per_s": float(slope)}
    begun = sampling_from_ns(folder)
    before = max((own for ns, own in whole if ns < begun), default=0)
    row |= {"before_bytes": before, "added_bytes": max(own for _, own in whole) - before}
    append(options.out / "memory.jsonl", row)


def sampling_from_ns(folder: Path) -> int:
    """When the last trace without counters had ended, on the host's clock: what comes next is for them."""
    said = [row for file in folder.glob("raw/proc-*.jsonl") for row in lines(file)]
    first = min(row["start_ns"][0] for row in said if row.get("t") == "samples")
    traced = (row["stop_ns"] for row in said if row.get("t") == "trace")
    return max((stop for stop in traced if stop < first), default=first)


def many_rounds(count: int) -> Any:
    """Have the remembered counters sampled `count` times over; returns what takes that back."""
    from fathom.machine import known_machine
    from fathom.machine.store import place

    file = place(known_machine()["fingerprint"])
    before = file.read_text() if file.exists() else sys.exit("qualify the counters of this machine first")
    machine = json.loads(before)
    machine["counters"]["rounds"] = count
    file.write_text(json.dumps(machine))
    return lambda: file.write_text(before)


def summary(options: argparse.Namespace) -> None:
    """Write what the output folder amounts to: ratios with 95 % bounds, and slopes of memory."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in lines(options.out / "pairs.jsonl"):
        groups.setdefault((row["program"], row["device"]), []).append(measured(row, options.out))
    found = {
        "step_time": [asdict(cost_of(rows)) for rows in groups.values()],
        "memory": lines(options.out / "memory.jsonl"),
    }
    keep("counters_cost.json", found)


def add_recorded(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", choices=["train_gpt", "launch_bound"])
    parser.add_argument("--cores", help="run on these alone, as in 2-5")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--out", type=Path, default=Path("out/counters"))


def main() -> None:
    run(__doc__, {steps: add_recorded, memory: add_recorded, summary: add_folder})


if __name__ == "__main__":
    main()
