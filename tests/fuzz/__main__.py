"""Run cases for a given time, in rounds that are processes of bounded life and memory.

python -m tests.fuzz --minutes 60 --seed 1 --out build/fuzz
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GRACE_S = 600  # for the last case of a round, and for its minimal reproduction


@dataclass
class Total:
    """Distinct cases of all rounds, by digest, and what went wrong in them."""

    seen: dict[str, str] = field(default_factory=dict)
    failures: set[str] = field(default_factory=set)
    peak_gib: float = 0.0

    def add(self, result: dict[str, Any]) -> None:
        """Add what a round saw."""
        self.seen |= result["seen"]
        self.failures |= set(result["failures"])
        self.peak_gib = max(self.peak_gib, result["peak_gib"])

    def __str__(self) -> str:
        counted = ", ".join(f"{count:,} {kind}" for kind, count in Counter(self.seen.values()).most_common())
        return (
            f"{len(self.seen):,} distinct inputs ({counted}): {len(self.failures)} failures; a round took "
            f"{self.peak_gib:.2f} GiB at most"
        )


def one_round(seed: int, until: float, out: Path, seen: list[str]) -> dict[str, Any]:
    """Run one round; its own end before its time is a failure too."""
    left = max(until - time.monotonic(), 0.0)
    words = [sys.executable, "-W", "ignore", "-m", "tests.fuzz.rounds", str(seed), str(left), str(out)]
    try:
        done = subprocess.run(
            words,
            input=json.dumps(seen),
            stdout=subprocess.PIPE,
            text=True,
            timeout=left + GRACE_S,
            check=True,
        )
    except subprocess.SubprocessError as error:
        print(f"round {seed}: {error}", flush=True)
        return {"seen": {}, "failures": [f"round {seed}"], "peak_gib": 0.0}
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def rounds(total: Total, seeds: range, until: float, out: Path) -> None:
    """Run rounds one after the other until the time is over."""
    for seed in seeds:
        if time.monotonic() >= until:
            return
        total.add(one_round(seed, until, out, list(total.seen)))
        print(total, flush=True)


def main() -> None:
    """Run until the time is over; exit with status 1 after a failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    options = parser.parse_args()
    total, first = Total(), options.seed * 10**6
    until = time.monotonic() + 60 * options.minutes
    with ThreadPoolExecutor(options.processes) as pool:
        for number in range(options.processes):
            seeds = range(first + number, first + 10**6, options.processes)
            pool.submit(rounds, total, seeds, until, options.out)
    print(total)
    sys.exit(bool(total.failures))


if __name__ == "__main__":
    main()
