"""Measure what `fathom run --depth surface` costs a server at load: throughput, processor time, memory.

    python -m benchmarks.serving.surface PYTHON MODEL [--minutes 30] [--stretch 12]

Two servers are alive all the time, of which one is recorded. A closed loop loads them in turns, in stretches
of some seconds, while the other one waits; the order in each pair is random. Both see the same machine, and
two cores are enough. The idle server's processor time is printed as well: it disturbs the other one.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import psutil

from benchmarks.serving import engines
from benchmarks.serving.client import Load
from fathom.units import NS_PER_S

CLIENTS, DRAWS = 4, 10_000
LEAD_S = 30.0  # of the load of each server before the first pair: caches, allocators
MB = 1e6


class Stretch(NamedTuple):
    """One server under load."""

    rate: float  # requests per second
    cpu: float  # seconds of its processes per request
    idle: float  # cores that the other server used meanwhile
    memory: float  # bytes, resident in the server's process after it


class Server:
    """A running server, with or without Fathom."""

    def __init__(self, pid: int, port: int, folder: Path, load: Load) -> None:
        self.root, self.port, self.folder, self.load = psutil.Process(pid), port, folder, load

    def _processes(self) -> list[psutil.Process]:
        return [self.root, *self.root.children(recursive=True)]

    def cpu_s(self) -> float:
        """Return the processor time of all of its processes, Fathom's parent among them."""
        times = [process.cpu_times() for process in self._processes()]
        return sum(each.user + each.system for each in times)

    def memory(self) -> float:
        """Return the resident bytes of its largest process, which is the server."""
        return float(max(process.memory_info().rss for process in self._processes()))

    def loaded(self, seconds: float, seed: int, other: Server) -> Stretch:
        """Send requests for some seconds."""
        own, others, begun = self.cpu_s(), other.cpu_s(), time.monotonic()
        load = replace(self.load, clients=CLIENTS, seconds=seconds, seed=seed)
        timed = engines.drive(self.port, self.folder, load)
        took = time.monotonic() - begun
        span = (max(sent["end_ns"] for sent in timed) - min(sent["start_ns"] for sent in timed)) / NS_PER_S
        cpu = (self.cpu_s() - own) / len(timed)
        return Stretch(len(timed) / span, cpu, (other.cpu_s() - others) / took, self.memory())


def ratio(plain: list[float], recorded: list[float]) -> tuple[float, float, float]:
    """Return recorded over plain, the geometric mean of the pairs, with its 95 % interval."""
    logs = np.log(recorded) - np.log(plain)
    drawn = np.random.default_rng(1).choice(logs, (DRAWS, len(logs))).mean(axis=1)
    low, high = np.quantile(np.exp(drawn), (0.025, 0.975))
    return float(np.exp(logs.mean())), float(low), float(high)


def grown(memory: list[float]) -> float:
    """Return the bytes by which memory grew from the first third of the stretches to the last."""
    third = max(len(memory) // 3, 1)
    return median(memory[-third:]) - median(memory[:third])


def pairs(servers: dict[bool, Server], minutes: float, stretch: float) -> dict[bool, list[Stretch]]:
    """Load the servers in turns, and print each pair."""
    taken: dict[bool, list[Stretch]] = {True: [], False: []}
    for server in servers.values():
        engines.drive(server.port, server.folder, replace(server.load, clients=CLIENTS, seconds=LEAD_S))
    order, until, seed = random.Random(1), time.monotonic() + 60 * minutes, 2
    while time.monotonic() < until:
        for recorded in order.sample([True, False], 2):
            taken[recorded].append(servers[recorded].loaded(stretch, seed, servers[not recorded]))
        seed += 1
        plain, with_fathom = taken[False][-1], taken[True][-1]
        print(_line(plain, with_fathom), flush=True)
    return taken


def _line(plain: Stretch, recorded: Stretch) -> str:
    rates = f"{plain.rate:.3f} -> {recorded.rate:.3f} requests/s"
    cpu = f"{1000 * plain.cpu:.2f} -> {1000 * recorded.cpu:.2f} ms of processor time each"
    memory = f"{plain.memory / MB:.1f} -> {recorded.memory / MB:.1f} MB"
    return f"{rates}, {cpu}, {memory}, idle {plain.idle:.3f} and {recorded.idle:.3f} cores"


def summary(taken: dict[bool, list[Stretch]]) -> None:
    """Print the ratios of all pairs, and how memory grew."""
    for name in ("rate", "cpu"):
        of = {form: [float(getattr(stretch, name)) for stretch in taken[form]] for form in taken}
        middle, low, high = ratio(of[False], of[True])
        words = "throughput" if name == "rate" else "processor time per request"
        print(f"{words}, recorded over plain: {middle:.4f} ({low:.4f} to {high:.4f}), n = {len(of[True])}")
    for form, word in ((True, "recorded"), (False, "plain")):
        memory = [stretch.memory for stretch in taken[form]]
        first, last = memory[0] / MB, memory[-1] / MB
        print(f"memory, {word}: {first:.1f} MB, {last:.1f} MB at the end, grew {grown(memory) / MB:.2f} MB")


def main() -> None:
    """Print each pair of stretches, then the ratios with their intervals, and how memory grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("model", type=Path)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--stretch", type=float, default=12.0, help="Seconds of load in turn.")
    parser.add_argument("--control", action="store_true", help="Record neither: how far two servers differ.")
    chosen = parser.parse_args()
    load = Load(tokens=16, words=60, model=str(chosen.model))
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        servers = {}
        for recorded in (True, False):
            folder, port = Path(made) / str(recorded), engines.free_port()
            folder.mkdir()
            command = engines.transformers_serve(chosen.python, chosen.model, port)
            run = [*engines.FATHOM, "run", "--depth", "surface", "-o", str(folder / "serve.fathom"), "--"]
            running = engines.running(
                [*run, *command] if recorded and not chosen.control else command, port, folder / "log"
            )
            servers[recorded] = Server(stack.enter_context(running).pid, port, folder, load)
        summary(pairs(servers, chosen.minutes, chosen.stretch))


if __name__ == "__main__":
    main()
