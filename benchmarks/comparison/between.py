"""How much runs of one program differ: the scatter that `fathom compare` assumes for a single recording.

    python -m benchmarks.comparison.between

- kernels: ten kernels in 80 to 370 processes each, from `results/equal_sides.json`. The variance of the
  processes' means without that of their launches; the median over proofs, each on one H200 within a minute
- families: kernel families of pairs of recordings of one program that launch them equally often, in
  `benchmarks/unrelated/recordings`. An upper bound: the recordings differ by a planted fault
- shift: the median over all these families of a pair
- host: steps that wait for the host, before and after a recording in one process, from
  `results/compiling.json`

All are relative standard deviations of one run. Writes `results/between.json`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl

from fathom.sounding import open_store
from faults import kept

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
RECORDINGS = ROOT / "benchmarks" / "unrelated" / "recordings"
LAUNCHES, PROCESSES, FAMILIES = 5, 3, 4  # fewer say nothing about a scatter
LEAST_NS = 50_000  # of a kernel: shorter ones scatter within a run
NORMAL = 1.4826  # standard deviation over the median absolute deviation
HOST_BOUND = ("diffusion", "language", "launch_bound", "messages", "ranking", "speech", "train_gpt")
Families = dict[str, tuple[int, float]]  # launches and mean ns


def main() -> None:
    pairs = list(_shifts())
    own = np.concatenate([np.subtract(logs, np.median(logs)) for logs in pairs])
    result = {
        "kernels": {name: round(value, 5) for name, value in kernels().items()},
        "kernels, median": round(float(np.median(list(kernels().values()))), 5),
        "families": _of_one(own),
        "families, pairs": len(pairs),
        "shift": _of_one(np.array([np.median(logs) for logs in pairs])),
        "host": round(_host(), 5),
    }
    (RESULTS / "between.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def _of_one(differences: np.ndarray) -> float:
    """Return the robust standard deviation of one run from differences of two."""
    return round(NORMAL * float(np.median(np.abs(differences))) / 2**0.5, 5)


def kernels() -> dict[str, float]:
    """Return the relative standard deviation between processes of each kernel."""
    proofs = json.loads((RESULTS / "equal_sides.json").read_text())["proofs"]
    variances = defaultdict(list)
    for proof in proofs:
        for side in ("baseline", "candidate") if proof["planted"] == "equal" else ():
            blocks = [np.log(block) for block in proof[side] if len(block) >= LAUNCHES]
            if len(blocks) >= PROCESSES:
                variances[proof["kernel"]].append(_between(blocks))
    return {name: float(np.median(values)) ** 0.5 for name, values in variances.items()}


def _between(blocks: list[np.ndarray]) -> float:
    means = np.array([block.mean() for block in blocks])
    within = np.mean([block.var(ddof=1) / len(block) for block in blocks])
    return max(float(means.var(ddof=1) - within), 0.0)


def _shifts() -> Iterator[list[float]]:
    """Yield the log ratios of the families that a pair of recordings of one program shares."""
    for archive in kept.archives(RECORDINGS):
        with kept.unpacked(archive) as paths:
            families = [_families(path) for path in paths]
        for a, b in combinations(families, 2):
            logs = [
                float(np.log(b[name][1] / a[name][1])) for name in a if b.get(name, (0,))[0] == a[name][0]
            ]
            if len(logs) >= FAMILIES:
                yield logs


def _families(path: Path) -> Families:
    store = open_store(path)
    rank = store.ranks[0]
    steps = store.table("steps", rank).filter(phase="timeline").collect().height
    kernels = store.table("kernels", rank).filter(phase="timeline", kind="compute")
    took = (pl.col("end_ns") - pl.col("start_ns")).mean()
    rows = kernels.group_by("family").agg(launches=pl.len() // steps, ns=took).filter(pl.col("ns") > LEAST_NS)
    return {name: (launches, ns) for name, launches, ns in rows.collect().iter_rows()}


def _host() -> float:
    rows = json.loads((RESULTS / "compiling.json").read_text())["rows"]
    logs = [np.log(row["eager_ms"] / row["clean_ms"]) for row in rows if row["program"] in HOST_BOUND]
    return float(np.std(logs) / 2**0.5)


if __name__ == "__main__":
    main()
