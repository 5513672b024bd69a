"""`fathom what-if bucket=SIZE` against DistributedDataParallel with that `bucket_cap_mb`, on two gloo ranks.

    python -m benchmarks.ranks.buckets [--pairs 0.25:25,25:0.25,...] [--rounds 2] [--out FILE]

Each pair A:B runs the program in both sizes (MiB), by turns, unrecorded; then it is recorded with A, and B is
predicted. What counts is the ratio of the steps, B over A. Writes `results/buckets.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import fathom

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "benchmarks" / "programs" / "ddp_buckets.py"
RESULTS = ROOT / "benchmarks" / "results" / "buckets.json"
PAIRS = "0.25:25,0.25:1,1:25,25:0.25"
STEPS, RECORDED, WARMUP = 200, 600, 40


def command(bucket: str, *more: str) -> list[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*torchrun, str(PROGRAM), "--bucket-mib", bucket, *more]


def run(words: list[str]) -> None:
    paths = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=400)
    if done.returncode not in (0, 1, 143):
        sys.exit(f"{' '.join(words)[:200]} failed: {done.stderr[-2000:]}")


def step_ms(bucket: str, folder: Path) -> float:
    """Return the mean of an unrecorded run after warm-up, without its longest twentieth."""
    times = folder / "times.json"
    run(command(bucket, "--steps", str(STEPS), "--times", str(times)))
    steps = sorted(json.loads(times.read_text())["steps_s"][WARMUP:])
    return 1e3 * statistics.mean(steps[: int(len(steps) * 0.95)])


def measure(before: str, after: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Predict one size from a recording of another, and measure both."""
    times: dict[str, list[float]] = {before: [], after: []}
    for turn in range(rounds):
        for bucket in (before, after) if turn % 2 == 0 else (after, before):
            times[bucket].append(step_ms(bucket, folder))
    path = folder / f"{before}.fathom"
    options = ["--no-measure", "--quiet", "--replace", "--stop-after", "recorded", "-o", str(path)]
    run([sys.executable, "-m", "fathom", "run", *options, "--", *command(before, "--steps", str(RECORDED))])
    seen = fathom.open(path).what_if(f"bucket={after}MiB")
    step, ratio = seen.clean_ms, statistics.mean(times[after]) / statistics.mean(times[before])
    row = {
        "before": before,
        "after": after,
        "ms": {key: [round(t, 2) for t in own] for key, own in times.items()},
    }
    row |= {"measured": round(ratio, 3), "load": round(os.getloadavg()[0], 1)}
    if not step or seen.clean_predicted_ms is None or seen.clean_ci_ms is None:
        return row | {"abstained": [abstained.why for abstained in seen.abstained]}
    low, high = (round(ms / step, 3) for ms in seen.clean_ci_ms)
    predicted = round(seen.clean_predicted_ms / step, 3)
    return row | {"recorded_ms": round(step, 2), "predicted": predicted, "low": low, "high": high,
                  "inside": low <= ratio <= high}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", default=PAIRS, help="sizes of buckets in MiB, recorded:predicted")
    parser.add_argument("--rounds", type=int, default=2, help="unrecorded runs of each size")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for pair in options.pairs.split(","):
            before, after = pair.split(":")
            rows.append(measure(before, after, options.rounds, Path(scratch)))
            print(json.dumps(rows[-1]), flush=True)
    options.out.write_text(json.dumps({"cpus": os.cpu_count(), "runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
