"""Faults of communication planted in programs of several ranks: are cause, rank and lost time right?

    python -m benchmarks.ranks.live [--ranks 2,4] [--only slow_input,...] [--runs 1] [--lanes 1]
        [--device cuda] [--keep FOLDER [--judge]]

Each program of `faults/programs/ranks`, with `--device cuda` also of `faults/programs/communication`, runs
unrecorded in both forms, by turns, and is recorded with its fault; lanes are jobs side by side, each on other
cores and GPUs. The first finding has to name the planted cause and, where one rank is late, that rank; its
gain has to be within 10 % of what the mended program gains: on the unrecorded step, and on the recorded one,
because two runs of a program differ. Where the mended program is no faster, nothing is at fault: these
programs are listed, and count neither way. Sensors of throttled clocks are made up. Writes
`results/live_ranks.json`, of GPUs `results/live_ranks_gpu.json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import polars as pl
import torch

from fathom.diagnosis import examine
from fathom.sounding import Store, conform, open_store
from fathom.sounding.store import checksum
from fathom.units import NS_PER_MS
from faults.labels import FORMS, LATE, programs
from faults.parallel import shares

ROOT = Path(__file__).resolve().parents[2]
RESULTS = {
    device: ROOT / "benchmarks" / "results" / f"live_ranks{suffix}.json"
    for device, suffix in (("cpu", ""), ("cuda", "_gpu"))
}
SENSED = {"throttled": "slow_backward"}  # runs whose sensors are made to show low clocks, and their programs
GROUPS = {"cpu": ("ranks",), "cuda": ("ranks", "communication")}
PROGRAMS = {program.name: program for program in programs() if program.group in GROUPS["cuda"]}
CLOCKS = "communication-straggler-clocks"
WITHIN = 0.10
WORTH = 0.03  # of the step: a fault that costs less is none
WARMUP = 0.2  # of the steps
TIMED, RECORDED = 120, 600  # steps
SLOWER = (1.3, 1.7, 2.3)  # by severity, as in the program
PERIOD_NS, WELL_MHZ = int(100 * NS_PER_MS), 1980
_here = threading.local()  # the GPUs of a lane


def run(words: Sequence[str], late: int) -> None:
    """Run a command; 143 means that Fathom ended its program. Raises SystemExit with its last lines."""
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, LATE: str(late)}
    environment |= {"CUDA_VISIBLE_DEVICES": _here.gpus} if hasattr(_here, "gpus") else {}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=400)
    if done.returncode not in (0, 1, 143):
        sys.exit(f"{' '.join(words)[:200]} failed: {done.stderr[-2000:]}")


def step_ms(words: Sequence[str], late: int) -> float:
    """Return the mean step of an unrecorded run after warm-up, without its longest twentieth."""
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times.json"
        run([*words, "--steps", str(TIMED), "--times", str(times)], late)
        steps = json.loads(times.read_text())["steps_s"]
    kept = sorted(steps[int(len(steps) * WARMUP) :])
    return 1e3 * statistics.mean(kept[: int(len(kept) * 0.95)])


def recorded(words: Sequence[str], path: Path, late: int) -> Store:
    """Record the program with its fault."""
    shutil.rmtree(path, ignore_errors=True)
    options = ["--no-measure", "--quiet", "--stop-after", "recorded", "-o", str(path)]
    command = [sys.executable, "-m", "fathom", "run", *options, "--", *words, "--steps", str(RECORDED)]
    run(command, late)
    return open_store(path)


def add_sensors(store: Store, late: int, slower: float) -> None:
    """Add made-up sensors of one GPU per rank, of which the late rank's is throttled."""
    path = store.path
    for rank in store.ranks:
        steps = store.table("steps", rank).collect()
        first, last = int(steps["mark_ns"].min()), int(steps["mark_ns"].max())  # type: ignore[arg-type]
        times = range(first, last, PERIOD_NS)
        clock = round(WELL_MHZ / slower) if rank == late else WELL_MHZ
        rows = {"device": rank, "time_ns": list(times), "sm_clock_mhz": clock, "busy_percent": 99.0}
        own = pl.DataFrame(rows).with_columns(throttle=pl.lit(0x40 if rank == late else 0))
        file = path / f"rank-{rank}" / "telemetry.parquet"
        before = [pl.read_parquet(file).filter(pl.col("device").is_null())] if file.exists() else []
        pl.concat([*before, conform("telemetry", own)]).write_parquet(file)
    manifest = json.loads((path / "manifest.json").read_text())
    files = [file.relative_to(path).as_posix() for file in path.glob("rank-*/*.parquet")]
    manifest["checksums"] |= {name: checksum(path / name) for name in files}
    (path / "manifest.json").write_text(json.dumps(manifest))


def measure(
    name: str, ranks: int, seed: int, keep: Path, severity: int, pairs: int, device: str
) -> dict[str, Any]:
    """Run one program, and judge what Fathom says of it."""
    program, late = PROGRAMS[SENSED.get(name, name)], random.Random(f"{name}{ranks}{seed}").randrange(ranks)
    if program.group == "communication":
        late = ranks - 1
    faulty, mended = (program.command(form, severity, "--device", device, ranks=ranks) for form in FORMS)
    times: dict[str, list[float]] = {"faulty": [], "mended": []}
    for form in ("faulty", "mended", "mended", "faulty")[: 2 * pairs]:
        times[form].append(step_ms(faulty if form == "faulty" else mended, late))
    file = f"{name}.{ranks}.{severity}.{seed}.fathom"
    store = recorded(faulty, keep / file, late)
    if name in SENSED:
        add_sensors(store, late, SLOWER[severity - 1])
    before, after = (statistics.mean(times[form]) for form in FORMS)
    about = {"sounding": file, "program": name, "ranks": ranks, "late": late, "severity": severity}
    gains = {"faulty_ms": round(before, 2), "mended_ms": round(after, 2), "gain_ms": round(before - after, 2)}
    row = about | gains | {"load": round(os.getloadavg()[0], 1)}
    return row | judged(open_store(store.path), row)


def judged(store: Store, row: dict[str, Any]) -> dict[str, Any]:
    """Compare the first finding with the planted cause, and its gain with that of the mended program."""
    name, late, gain = row["program"], row["late"], row["gain_ms"]
    cause = CLOCKS if name in SENSED else str(PROGRAMS[name].fault.kind)
    seen = examine(store)
    findings = seen.findings
    fault = PROGRAMS[SENSED.get(name, name)].fault
    first = next((finding for finding in findings if finding.id not in fault.allowed), None)
    right = first is not None and first.id in (cause, *fault.parts)
    said = " ".join(line.text for line in first.evidence) if first else ""
    if cause.startswith("communication-straggler"):
        right = right and f"rank {late} " in said
    predicted = first.gain_ms if right and first else None
    own = (seen.step.basis_ms or 0.0) - row["mended_ms"]  # on the step that was recorded
    return {
        "first": first.id if first else None,
        "right": right,
        "predicted_ms": None if predicted is None else round(predicted, 2),
        "within": predicted is not None and abs(predicted / gain - 1) <= WITHIN,
        "own_gain_ms": round(own, 2),
        "within_own": predicted is not None and abs(predicted / own - 1) <= WITHIN,
        "others": [finding.id for finding in findings if finding is not first][:2],
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the shares of right answers, over the programs whose mended form is faster."""
    faultless = [row for row in rows if row["gain_ms"] < WORTH * row["faulty_ms"]]
    rows = [row for row in rows if row not in faultless] or rows
    errors = [
        abs(row["predicted_ms"] / row["gain_ms"] - 1) for row in rows if row["predicted_ms"] is not None
    ]
    return {
        "runs": len(rows),
        "no_fault_here": {row["program"]: row["first"] for row in faultless},
        "cause_and_rank_first": sum(row["right"] for row in rows) / len(rows),
        "gain_within_10_percent": sum(row["within"] for row in rows) / len(rows),
        "own_gain_within_10_percent": sum(row["within_own"] for row in rows) / len(rows),
        "median_error_of_gain": round(statistics.median(errors), 3) if errors else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--only", help="programs, instead of all for the device")
    parser.add_argument("--device", choices=GROUPS, default="cpu")
    parser.add_argument("--severity", type=int, default=3)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first run; it draws the late rank")
    parser.add_argument("--lanes", type=int, default=1, help="jobs side by side")
    parser.add_argument("--pairs", type=int, choices=(1, 2), default=2, help="of unrecorded runs")
    parser.add_argument("--keep", type=Path, help="keep the soundings in this folder")
    parser.add_argument("--judge", action="store_true", help="judge the kept soundings anew, and run nothing")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.out = options.out or RESULTS[options.device]
    every = [name for name, program in PROGRAMS.items() if program.group in GROUPS[options.device]]
    if options.judge:
        known = json.loads(options.out.read_text())
        rows = [row | judged(open_store(options.keep / row["sounding"]), row) for row in known["runs"]]
        write(options.out, rows, known["machine"])
        return
    with tempfile.TemporaryDirectory() as scratch:
        keep, rows = options.keep or Path(scratch), []
        keep.mkdir(parents=True, exist_ok=True)
        names = options.only.split(",") if options.only else [*every, *SENSED]
        seeds = range(options.seed, options.seed + options.runs)
        jobs = itertools.product(names, map(int, options.ranks.split(",")), seeds)
        how = options.severity, options.pairs, options.device
        with lanes(options.lanes, options.device) as pool:
            work = [pool.submit(measure, name, ranks, seed, keep, *how) for name, ranks, seed in jobs]
            for done in as_completed(work):
                if done.exception():
                    print(done.exception(), flush=True)
                    continue
                rows.append(done.result())
                write(options.out, rows)


def lanes(count: int, device: str) -> ThreadPoolExecutor:
    """Return a pool whose threads, and the processes that they start, run on separate cores and GPUs."""
    cores, gpus = iter(shares(count)), iter(_shared_gpus(count) if device == "cuda" else [])

    def settle() -> None:
        os.sched_setaffinity(0, next(cores))
        if device == "cuda":
            _here.gpus = ",".join(next(gpus))

    return ThreadPoolExecutor(count, initializer=settle)


def _shared_gpus(count: int) -> list[list[str]]:
    """Return this machine's GPUs in `count` equal parts."""
    gpus = [str(number) for number in range(torch.cuda.device_count())]
    each = len(gpus) // count
    return [gpus[lane * each : (lane + 1) * each] for lane in range(count)]


def write(path: Path, rows: list[dict[str, Any]], machine: dict[str, Any] | None = None) -> None:
    """Write and print what is known so far; `machine` ran the programs, by default this one."""
    machine = machine or {"cpus": os.cpu_count(), "system": platform.platform()}
    path.write_text(json.dumps({"machine": machine, "summary": summary(rows), "runs": rows}, indent=1) + "\n")
    print(json.dumps(rows[-1]), json.dumps(summary(rows)), flush=True)


if __name__ == "__main__":
    main()
