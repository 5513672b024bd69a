"""Where the time of proofs goes: what the sides are asked, how often, and how long they take to answer.

    python -m benchmarks.referee.proof_time streaming-hints wide-loads --jobs 2  # techniques of the lab
    python -m benchmarks.referee.proof_time --kernels elementwise convolution    # against themselves

Nothing is kept. Answers of proofs side by side overlap, and a side that is stopped while another is measured
goes on waiting: with one job the figures are of the work itself.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.referee.equal_sides import IMPORTED, KERNELS
from fathom.lab import run, techniques
from fathom.lab.crew import side_by_side
from fathom.referee import Pair, Settings, blocks, prove_pair, sides, worker
from fathom.referee.compare import judge
from fathom.referee.gate import Turn
from fathom.referee.launching import Fork

OPTIONS = "elsewhere", "cold", "check", "repeat"  # that tell one question from another


class Spent:
    """Seconds by what was done, and how often."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def timed(self, name: Callable[..., str]) -> Callable[[Any], Any]:
        """A wrapper that notes how long each call took, under what `name` makes of its arguments."""

        def wrap(original: Any) -> Any:
            @functools.wraps(original)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                began = time.perf_counter()
                try:
                    return original(*args, **kwargs)
                finally:
                    self.seconds[name(*args, **kwargs)].append(time.perf_counter() - began)

            return wrapper

        return wrap

    def reported(self) -> str:
        """A line for each, the longest first."""
        rows = sorted(self.seconds.items(), key=lambda row: -sum(row[1]))
        return "\n".join(
            f"  {name:44} {len(s):5} × {1e3 * sum(s) / len(s):8.2f} ms {sum(s):7.2f} s" for name, s in rows
        )


def question(_: worker.SideProcess, do: str, **more: Any) -> str:
    """The fields that identify one."""
    return " ".join([do, *(name for name in OPTIONS if more.get(name))])


def watch(spent: Spent) -> None:
    """Note everything that a proof waits for."""
    for owner, name, words in (
        (worker.SideProcess, "__enter__", "a process starts"),
        (worker.SideProcess, "_end", "a process ends"),
        (blocks.ProcessSampler, "block", "a block in all"),
        (judge.Judge, "judge", "results are compared"),
        (sides, "read", "results are read"),
    ):
        setattr(owner, name, spent.timed(lambda *_, words=words, **__: words)(getattr(owner, name)))
    worker.SideProcess.ask = spent.timed(question)(worker.SideProcess.ask)  # type: ignore[method-assign]


def kernel(launcher: Any, name: str, gate: Any) -> str:
    """A kernel against itself, six rounds."""
    plain, inputs = (f"{KERNELS}:{name}.{part}" for part in ("plain", "inputs"))
    settings = Settings(budget_s=0, bare=False, turn=Turn(gate, device="cuda"), launcher=launcher)
    verdict = prove_pair(Pair(plain=plain, tuned=plain, inputs=inputs, name=name), settings)
    return f"{name}: {verdict.verdict}, {verdict.seconds:.1f} s"


def of_kernels(names: list[str], jobs: int) -> Iterator[str]:
    """Those of `equal_kernels.py`, each against itself."""
    with (
        Fork(IMPORTED) as launcher,
        closing(side_by_side(names, functools.partial(kernel, launcher), jobs)) as said,
    ):
        yield from said


def of_techniques(names: list[str], jobs: int) -> Iterator[str]:
    """Both forms of each."""
    known = techniques()
    with TemporaryDirectory() as folder:
        for outcome in run([known[name] for name in names], budget_s=0, jobs=jobs, folder=Path(folder)):
            yield f"{outcome.technique}: {outcome.state} {outcome.reason}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", help="of techniques, or of kernels")
    parser.add_argument("--kernels", action="store_true", help="the names are those of kernels")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    spent = Spent()
    watch(spent)
    began = time.perf_counter()
    do = of_kernels if options.kernels else of_techniques
    for line in do(options.names, options.jobs):
        print(line, flush=True)
    print(f"{time.perf_counter() - began:.1f} s, of which")
    print(spent.reported())


if __name__ == "__main__":
    main()
