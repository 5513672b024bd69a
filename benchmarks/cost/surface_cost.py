"""Cost of `fathom run --depth surface` per step, as a share of a step of 100 ms, and bytes of log per step.

`python -m benchmarks.cost.surface_cost [STEPS] [ROUNDS]` runs a program with tiny steps, alternately bare and
recorded, with and without a data loader in its own process. The difference of its processor times is the
cost per step, because the work that a step does for the recording does not depend on its length.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROGRAM = """
import sys, time, torch
steps = int(sys.argv[1])
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(torch.randn(4 * steps, 8), batch_size=4)
begun = time.process_time()
for batch in loader if sys.argv[2] == "loader" else [torch.randn(4, 8)] * steps:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
print((time.process_time() - begun) / steps)
"""
STEP_S = 0.1


def step_s(folder: Path, steps: int, source: str, recorded: bool) -> float:
    """Return the processor seconds per step of one run of the program."""
    program = [sys.executable, str(folder / "program.py"), str(steps), source]
    options = [
        "--depth",
        "surface",
        "--no-measure",
        "--raw",
        "-q",
        "--replace",
        "-o",
        str(folder / "a.fathom"),
    ]
    command = [sys.executable, "-m", "fathom", "run", *options, "--", *program] if recorded else program
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def cost(folder: Path, source: str, steps: int, rounds: int) -> dict[str, Any]:
    """Return the cost per step with the range of the rounds, and the size of the raw records."""
    pairs = [[step_s(folder, steps, source, recorded) for recorded in (False, True)] for _ in range(rounds)]
    size = sum(file.stat().st_size for file in (folder / "a.fathom" / "raw").glob("proc-*.jsonl"))
    costs = sorted(recorded - bare for bare, recorded in pairs)
    return {
        "cost_us": round(1e6 * statistics.median(costs), 2),
        "cost_us_range": [round(1e6 * each, 2) for each in (costs[0], costs[-1])],
        "share_of_100_ms": statistics.median(costs) / STEP_S,
        "log_bytes_per_step": size / steps,
    }


def main(steps: int = 20_000, rounds: int = 7) -> None:
    """Print the cost with and without a loader."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        result = {source: cost(folder, source, steps, rounds) for source in ("loader", "none")}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
