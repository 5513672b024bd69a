"""How often the referee errs: ten kernels ten times against themselves, and ten times with a planted 2 %.

    export CUDA_DEVICE_MAX_CONNECTIONS=1  # one stream is all they need, and a context takes half the time
    python -m benchmarks.referee.equal_sides record OUT --minutes 9 --jobs 6  # on the target, until done
    python -m benchmarks.referee.equal_sides summary OUT

A proof that was reached is not repeated; `--minutes` begins none after that time. `--gpus` shares the proofs
and the cores among GPUs, by default all are on the one that torch would use. The planted 2 % is on either
side by turns, so it has to be found both as `slower` and as `faster`. `record` needs neither polars nor what
the report needs. `summary` writes `results/equal_sides.json`, each block's samples included: those of
`tests/benchmarks/test_equal_sides.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "benchmarks" / "referee" / "equal_kernels.py"
RESULT = ROOT / "benchmarks" / "results" / "equal_sides.json"
NAMES = (
    *("elementwise", "reduction", "softmax", "layer_norm", "matmul"),
    *("attention", "cumsum", "transposed_copy", "gather", "convolution"),
)
TIMES = 10
EQUAL, SLOWER, FASTER = "equal", "slower", "faster"
FORMS = {EQUAL: ("plain", "plain"), SLOWER: ("plain", "longer"), FASTER: ("longer", "plain")}
ABOUT = "about.json"
IMPORTED = ["torch", "torch._dynamo"]  # before processes fork: it takes seconds, and asks for no GPU


@dataclass(frozen=True)
class Trial:
    """One proof of one kernel; `planted` is what the verdict has to be, or that the sides are equal."""

    kernel: str
    planted: str
    number: int

    @property
    def file(self) -> str:
        return f"{self.kernel}-{self.planted}-{self.number}.json"


def trials(times: int = TIMES) -> list[Trial]:
    """A round of all kernels after another, so that whatever ends early has some of each."""
    planted = [(EQUAL, (SLOWER, FASTER)[number % 2]) for number in range(times)]
    return [
        Trial(kernel, kind, number)
        for number, kinds in enumerate(planted)
        for kind in kinds
        for kernel in NAMES
    ]


def record(options: argparse.Namespace, prove: Callable[..., Any] | None = None) -> int:
    """Prove what is left of this process's share. How many could not be proven."""
    from fathom import referee
    from fathom.lab.crew import side_by_side
    from fathom.lab.surroundings import here, room
    from fathom.machine import known_machine
    from fathom.referee.launching import Fork

    until = time.monotonic() + 60 * options.minutes
    part, parts = map(int, options.share.split("/"))
    left = [trial for trial in trials(options.times)[part::parts] if not (options.out / trial.file).exists()]
    machine = known_machine()
    at = here(machine)
    _write(options.out / ABOUT, _about(machine, at.device))
    failed = 0
    with Fork(IMPORTED) as launcher:
        do = partial(_proven, options, prove or referee.prove_pair, launcher, at.device, until)
        with closing(side_by_side(left, do, options.jobs or room(machine, at))) as said:
            for line, bad in said:
                failed += bad
                if line:
                    print(line, flush=True)
    return failed


def _proven(
    options: argparse.Namespace,
    prove: Callable[..., Any],
    launcher: Any,
    device: str,
    until: float,
    trial: Trial,
    gate: Any,
) -> tuple[str, bool]:
    """A line, none of what is left for another time; and whether it could not be proven."""
    from fathom.errors import FathomError
    from fathom.referee import Pair, Settings
    from fathom.referee.gate import Turn

    if time.monotonic() > until:
        return "", False
    plain, tuned, inputs = (f"{KERNELS}:{trial.kernel}.{name}" for name in (*FORMS[trial.planted], "inputs"))
    raced: list[Any] = []
    turn = Turn(gate, options.limit, device=device)
    settings = Settings(
        budget_s=options.budget,
        block_s=options.block,
        bare=False,
        patience_s=options.limit,
        turn=turn,
        launcher=launcher,
        keep=raced.append,
    )
    try:
        verdict = prove(Pair(plain=plain, tuned=tuned, inputs=inputs, name=trial.kernel), settings)
    except FathomError as error:
        return f"{trial.file}: {error}", True
    _write(options.out / trial.file, _row(trial, verdict, raced, settings.cache))
    return f"{trial.file}: {verdict.verdict} {verdict.ratio}", False


def _row(trial: Trial, verdict: Any, raced: Sequence[Any], cache: str) -> dict[str, Any]:
    """The verdict, and the samples of the condition that decides: whole nanoseconds, one list per process."""
    blocks = raced[-1] if raced else None
    sides = {"baseline": blocks.baseline, "candidate": blocks.candidate} if blocks else {}
    return {
        "kernel": trial.kernel,
        "planted": trial.planted,
        "number": trial.number,
        "verdict": verdict.verdict,
        "ratio": verdict.ratio,
        "interval": verdict.interval,
        "reasons": [reason.code for reason in verdict.reasons],
        "seconds": round(verdict.seconds, 1),
        **{side: [_samples(block.samples, cache) for block in taken] for side, taken in sides.items()},
    }


def _samples(samples: dict[str, list[float]], cache: str) -> list[int]:
    return [round(ns) for ns in samples.get(cache, samples.get("", []))]


def _about(machine: dict[str, Any], device: str) -> dict[str, Any]:
    gpus = [gpu.get("name") for gpu in machine.get("gpus") or []]
    versions = {name: machine["versions"].get(name) for name in ("torch", "driver", "cuda_driver")}
    return {
        "device": gpus[0] if gpus and device == "cuda" else "cpu",
        "date": time.strftime("%Y-%m-%d"),
        **versions,
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    total = path.with_suffix(f".{os.getpid()}.part")
    total.write_text(json.dumps(content, separators=(",", ":")))
    total.replace(path)


def on_all(options: argparse.Namespace) -> int:
    """A process for each GPU, with its share of proofs and cores. How many of them did not end well."""
    from faults.parallel import shares

    gpus, running = options.gpus.split(","), []
    same = [
        f"--{name}={getattr(options, name)}"
        for name in ("minutes", "times", "budget", "block", "limit", "jobs")
    ]
    for number, (gpu, cores) in enumerate(zip(gpus, shares(len(gpus)), strict=True)):
        command = [sys.executable, "-m", __spec__.name, "record", str(options.out), *same]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
        process = subprocess.Popen([*command, f"--share={number}/{len(gpus)}"], cwd=ROOT, env=environment)
        os.sched_setaffinity(process.pid, cores)  # before it has started anything itself
        running.append(process)
    return sum(process.wait() != 0 for process in running)


def rows(folder: Path) -> list[dict[str, Any]]:
    """Every proof that was reached, in the order of `trials`."""
    paths = [folder / trial.file for trial in trials()]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def right(row: dict[str, Any]) -> bool:
    """Equal sides are not distinguished, and a planted 2 % is found on the side where it is."""
    allowed = ("same", "inconclusive") if row["planted"] == EQUAL else (row["planted"],)
    return row["verdict"] in allowed


def summary(result: list[dict[str, Any]]) -> str:
    """Verdicts by kernel, and in all."""
    lines = [f"{'kernel':16} {'equal sides':30} {'2 % planted':40} ratio"]
    for kernel in NAMES:
        own = [row for row in result if row["kernel"] == kernel]
        said = [
            _counted([row for row in own if (row["planted"] == EQUAL) == equal]) for equal in (True, False)
        ]
        lines.append(f"{kernel:16} {said[0]:30} {said[1]:40} {_longer(own)}")
    for equal, words in ((True, "equal sides not distinguished"), (False, "2 % detected")):
        asked = [row for row in result if (row["planted"] == EQUAL) == equal]
        lines.append(f"{words}: {sum(map(right, asked))} of {len(asked)}")
    lines += [
        f"{row['kernel']} {row['planted']} {row['number']}: refused, {row['reasons']}"
        for row in result
        if row["reasons"]
    ]
    return "\n".join(lines)


def _counted(result: list[dict[str, Any]]) -> str:
    return ", ".join(
        f"{count} {word}" for word, count in Counter(row["verdict"] for row in result).most_common()
    )


def _longer(result: list[dict[str, Any]]) -> str:
    """The median of what the planted 2 % measured as."""
    planted = [row for row in result if row["planted"] != EQUAL and row["ratio"]]
    ratios = [row["ratio"] if row["planted"] == SLOWER else 1 / row["ratio"] for row in planted]
    return f"{statistics.median(ratios):.4f}" if ratios else "–"


def bench() -> str:
    """The result of the committed proofs."""
    if not RESULT.exists():
        return "No proofs are kept; record them on a GPU first."
    return summary(json.loads(RESULT.read_text())["proofs"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("record", "summary"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--gpus", default="", help="their numbers, as 0,1,2")
    parser.add_argument("--share", default="0/1", help="part of the proofs: the first of two is 0/2")
    parser.add_argument("--times", type=int, default=TIMES, help="proofs of each kind for a kernel")
    parser.add_argument("--budget", type=float, default=60, help="seconds of timing beyond six rounds")
    parser.add_argument("--block", type=float, default=0.3, help="most seconds of samples in a process")
    parser.add_argument("--limit", type=float, default=600, help="seconds at most for a proof")
    parser.add_argument(
        "--jobs", type=int, default=0, help="proofs side by side; 0: what the GPU has room for"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.what == "record":
        sys.exit(min(1, on_all(options) if options.gpus else record(options)))
    result = rows(options.out)
    about = json.loads((options.out / ABOUT).read_text())
    RESULT.parent.mkdir(exist_ok=True)
    _write(RESULT, {"about": about, "proofs": result})
    print(summary(result))


if __name__ == "__main__":
    main()
