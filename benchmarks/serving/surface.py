"""Measure what `fathom run --depth surface` costs a server at load: throughput, processor time, memory.

    python -m benchmarks.serving.surface PYTHON MODEL [--minutes 30] [--stretch 1]

One recorded server is loaded in stretches of the same requests. In one stretch of each pair, first and
second in turns, Fathom's hooks are off (`switched.py`) and its parent process is stopped, so that the server
runs as if it were not recorded. Two servers on two cores differ by more than Fathom costs. All pairs give:

- the share of throughput that is lost with Fathom;
- the processor time that the server uses more for the same requests;
- the processor time that the server and Fathom's parent add, as a share of the time of the stretch: the
  loss of throughput if all of it delayed answers, and no core was idle.

Memory is that of all processes. Half of the stretches are recorded. `--control` switches nothing.
"""

from __future__ import annotations

import argparse
import random
import socket
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGCONT, SIGRTMIN, SIGSTOP
from statistics import median
from typing import NamedTuple

import numpy as np
import psutil

from benchmarks.serving import client, engines

CLIENTS, DRAWS = 4, 10_000
LEAD_S = 30.0  # of load before the first pair: caches, allocators, steps that settle
SETTLE_S = 0.02  # after a stretch and a switch, until the server is idle
SHOWN = 100  # pairs between two lines
PROMPT = client.Load(tokens=16, words=60)
MB, NS_PER_S, PERCENT = 1e6, 1e9, 100


class Stretch(NamedTuple):
    """The server under load, with Fathom or without. Times in ns."""

    took: float
    server: float  # processor time
    parent: float  # processor time of Fathom's parent
    memory: float  # resident bytes of both after it


class Recorded:
    """A recorded server and Fathom's parent."""

    def __init__(self, parent: int, port: int, state: Path, model: str) -> None:
        self.parent = psutil.Process(parent)
        self.processes = [self.parent, *self.parent.children(recursive=True)]
        self.server = self.processes[1]
        self.port, self.state, self.model, self._sent = port, state, model, 0

    def switch(self, on: bool) -> None:
        """Let Fathom work, or keep it from any work."""
        self.parent.send_signal(SIGCONT if on else SIGSTOP)
        self.state.unlink(missing_ok=True)
        self.server.send_signal(SIGRTMIN + on)
        while not self.state.exists():
            time.sleep(0.001)
        time.sleep(SETTLE_S)

    def loaded(self, requests: int, seed: int) -> Stretch:
        """Send requests; the same seed means the same prompts but for a number that no other prompt has."""
        draw = random.Random(seed)
        messages = [self._message(draw) for _ in range(requests)]
        own, parents = _processor_ns(self.server), _processor_ns(self.parent)
        begun = time.monotonic_ns()
        with ThreadPoolExecutor(CLIENTS) as clients:
            for answer in clients.map(self._ask, messages):
                assert b" 200 " in answer[:16], answer
        took = time.monotonic_ns() - begun
        time.sleep(SETTLE_S)
        processor = _processor_ns(self.server) - own, _processor_ns(self.parent) - parents
        return Stretch(took, *processor, sum(each.memory_info().rss for each in self.processes))

    def _message(self, draw: random.Random) -> bytes:
        self._sent += 1
        begin = draw.randrange(len(client.WORDS) - PROMPT.words)
        text = " ".join([f"{self._sent:07}", *client.WORDS[begin : begin + PROMPT.words]])
        return client._request(self.port, client.Load(tokens=PROMPT.tokens, model=self.model), text)

    def _ask(self, message: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(message)
            answer = b""
            while not client._complete(answer):
                data = connection.recv(2**16)
                if not data:
                    break
                answer += data
            return answer


def _processor_ns(process: psutil.Process) -> int:
    """Return the processor time of a process and its threads so far: Linux' clock of that process."""
    return time.clock_gettime_ns(~process.pid << 3 | 2)


def measure(
    server: Recorded, minutes: float, stretch: float, switch: bool
) -> tuple[dict[bool, list[Stretch]], int]:
    """Load the server with and without Fathom in turns; return the requests of each stretch as well."""
    begun, requests = time.monotonic(), 0
    while (led := time.monotonic() - begun) < LEAD_S:
        server.loaded(CLIENTS, 0)
        requests += CLIENTS
    each = max(CLIENTS, round(requests / led * stretch / CLIENTS) * CLIENTS)
    print(f"{requests / led:.1f} requests/s, {each} in each stretch", flush=True)
    taken: dict[bool, list[Stretch]] = {True: [], False: []}
    until = time.monotonic() + 60 * minutes
    while time.monotonic() < until:
        for on in (True, False) if len(taken[True]) % 2 else (False, True):
            if switch:
                server.switch(on)
            taken[on].append(server.loaded(each, len(taken[on])))
        if len(taken[True]) % SHOWN == 0:
            summary(taken, each)
    server.switch(on=True)
    return taken, each


def share(part: Sequence[float], of: Sequence[float]) -> str:
    """Return the sum of the parts over all pairs as a share, with its 95 % interval."""
    drawn = np.random.default_rng(1).integers(len(of), size=(DRAWS, len(of)))
    low, high = np.quantile(np.take(part, drawn).sum(axis=1) / np.take(of, drawn).sum(axis=1), (0.025, 0.975))
    middle = sum(part) / sum(of)
    return f"{PERCENT * middle:.2f} % ({PERCENT * low:.2f} to {PERCENT * high:.2f})"


def grown(memory: Sequence[float]) -> float:
    """Return the bytes by which memory grew from the first third of the stretches to the last."""
    third = max(len(memory) // 3, 1)
    return median(memory[-third:]) - median(memory[:third])


def summary(taken: dict[bool, list[Stretch]], requests: int) -> None:
    """Print the costs by all pairs so far, and how memory grew."""
    pairs = list(zip(taken[False], taken[True], strict=True))
    lost = [on.took - off.took for off, on in pairs]
    used = [on.server - off.server for off, on in pairs]
    added = [on.server - off.server + on.parent for off, on in pairs]
    took, server = [off.took for off, _ in pairs], [off.server for off, _ in pairs]
    memory = [each.memory for pair in pairs for each in pair]
    off, on = ([median(part) for part in zip(*taken[form], strict=True)] for form in (False, True))
    print(f"{len(pairs)} pairs of {off[0] / NS_PER_S:.2f} s, {off[1] / requests / MB:.2f} ms of the server's "
          f"processor time per request, {on[2] / on[0]:.4f} cores of Fathom's parent")  # fmt: skip
    print(f"  throughput lost: {share(lost, [on.took for _, on in pairs])}")
    print(f"  processor time that the server adds: {share(used, server)}")
    print(f"  bound on the throughput lost, by all processor time that is added: {share(added, took)}")
    print(f"  memory: {memory[-1] / MB:.1f} MB, grew by {grown(memory) / MB:.2f} MB", flush=True)


def main() -> None:
    """Print the costs after every SHOWN pairs, and at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("model", type=Path)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--stretch", type=float, default=1.0, help="Seconds of load with or without Fathom.")
    parser.add_argument(
        "--control", action="store_true", help="Record all stretches: the measure's own error."
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder, port = Path(made), engines.free_port()
        command = engines.transformers_serve(chosen.python, chosen.model, port)
        command[command.index("benchmarks.serving.faulty")] = "benchmarks.serving.switched"
        run = [
            *engines.FATHOM,
            "run",
            "--depth",
            "surface",
            "-o",
            str(folder / "serve.fathom"),
            "--",
            *command,
        ]
        state = folder / "state"
        with engines.running(run, port, folder / "log", SWITCH_FILE=str(state)) as running:
            server = Recorded(running.pid, port, state, str(chosen.model))
            taken, each = measure(server, chosen.minutes, chosen.stretch, switch=not chosen.control)
        summary(taken, each)


if __name__ == "__main__":
    main()
