"""Measure what `fathom run --depth surface` costs a server at load: throughput in turns, and memory.

    python -m benchmarks.serving.surface PYTHON MODEL [--turns 6] [--minutes 5]

Each turn starts the server with and without Fathom, in alternating order, and sends more requests than it can
answer. Throughput needs quiet cores: eight or more. The processor time of the server's process per request
also shows on busy cores what Fathom adds: a server at load is bound by it.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from benchmarks.serving import engines
from benchmarks.serving.client import Load
from fathom.units import NS_PER_S

EVERY_S = 5.0  # between readings of memory


class Memory:
    """Follows the resident memory of a process and its children, in bytes."""

    def __init__(self, pid: int) -> None:
        self.read: list[int] = []
        self.done = threading.Event()
        threading.Thread(target=self._follow, args=(psutil.Process(pid),), daemon=True).start()

    def _follow(self, root: psutil.Process) -> None:
        while not self.done.wait(EVERY_S):
            tree = [root, *root.children(recursive=True)] if root.is_running() else []
            self.read.append(max((process.memory_info().rss for process in tree), default=0))


class Turn(NamedTuple):
    """One run of the server."""

    rate: float  # requests per second
    cpu: float  # seconds of the server's process per request
    grown: float  # share by which memory grew from the first third of the run to the last


def _cpu_s(pid: int) -> float:
    """Return the processor time of the busiest process below `pid`, which is the server."""
    root = psutil.Process(pid)
    times = [process.cpu_times() for process in (root, *root.children(recursive=True))]
    return max(each.user + each.system for each in times)


def turn(python: str, model: Path, seconds: float, recorded: bool) -> Turn:
    """Run the server at load."""
    with tempfile.TemporaryDirectory() as made:
        folder, port = Path(made), engines.free_port()
        command = engines.transformers_serve(python, model, port)
        run = [*engines.FATHOM, "run", "--depth", "surface", "-o", str(folder / "serve.fathom"), "--"]
        load = Load(requests=int(20 * seconds), rate=20.0, tokens=16, words=60, model=str(model))
        with engines.running([*run, *command] if recorded else command, port, folder / "log") as process:
            engines.drive(port, folder, Load(requests=4, rate=2.0, tokens=4, words=20, model=str(model)))
            memory, before = Memory(process.pid), _cpu_s(process.pid)
            timed = engines.drive(port, folder, load)
            cpu = (_cpu_s(process.pid) - before) / len(timed)
            memory.done.set()
        span = max(sent["end_ns"] for sent in timed) - min(sent["start_ns"] for sent in timed)
        third = max(len(memory.read) // 3, 1)
        grown = median(memory.read[-third:]) / median(memory.read[:third]) if memory.read else 1.0
    return Turn(len(timed) / (span / NS_PER_S), cpu, grown - 1.0)


def main() -> None:
    """Print each turn, and the median loss of throughput."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("model", type=Path)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=5.0)
    chosen = parser.parse_args()
    losses, added = [], []
    for number in range(chosen.turns):
        order = (False, True) if number % 2 else (True, False)
        of = {form: turn(chosen.python, chosen.model, 60 * chosen.minutes, form) for form in order}
        plain, recorded = of[False], of[True]
        losses.append(1 - recorded.rate / plain.rate)
        added.append(recorded.cpu / plain.cpu - 1)
        print(
            f"{plain.rate:.3f} -> {recorded.rate:.3f} requests/s, "
            f"{1000 * plain.cpu:.3f} -> {1000 * recorded.cpu:.3f} ms of processor time each, "
            f"memory grew {100 * recorded.grown:.2f} % ({100 * plain.grown:.2f} % without)",
            flush=True,
        )
    for name, shares in (("loss of throughput", losses), ("processor time added", added)):
        low, middle, high = (f"{100 * of(shares):.2f}" for of in (min, median, max))
        print(f"{name}: median {middle} % ({low} to {high})")


if __name__ == "__main__":
    main()
