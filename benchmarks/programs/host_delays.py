"""Steps with delays on the host, each in its own function; when each one ran is written down.

python host_delays.py --truth truth.json            # a small network trains on the processor
python host_delays.py --numpy --truth truth.json    # numpy alone
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fathom

LONG_S = 0.1


class Delays:
    """Delays that ran: kind, begin and end in nanoseconds since the epoch, and the lines of its function."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def run(self, delay: Callable[[], object]) -> None:
        start = time.time_ns()
        delay()
        self.add(delay, start)

    def add(self, delay: Callable[..., object], start: int) -> None:
        code = delay.__code__
        lines = [line for _, _, line in code.co_lines() if line]
        row = {"kind": delay.__name__, "start_ns": start, "end_ns": time.time_ns(), "file": code.co_filename}
        self.rows.append({**row, "first": min(lines), "last": max(lines)})


def sleeping() -> None:
    time.sleep(LONG_S)


def computing() -> None:
    until, total = time.perf_counter() + LONG_S, 0
    while time.perf_counter() < until:
        total += 1


TEXT = json.dumps([{"name": f"row {i}", "values": [i, i + 1, i + 2]} for i in range(2000)])


def parsing() -> None:
    until = time.perf_counter() + LONG_S
    while time.perf_counter() < until:
        json.loads(TEXT, parse_int=str)


def writing() -> None:
    with tempfile.TemporaryFile() as file:
        until = time.perf_counter() + LONG_S
        while time.perf_counter() < until:
            os.write(file.fileno(), b"x" * 65536)
            os.fsync(file.fileno())


def waiting() -> None:
    answers: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.Timer(LONG_S, answers.put, [1]).start()
    answers.get()


def multiplying() -> None:
    until = time.perf_counter() + LONG_S
    while time.perf_counter() < until:
        np.linalg.svd(MATRIX)


MATRIX = np.random.default_rng(0).random((96, 96))
DELAYS = (sleeping, computing, parsing, writing, waiting, multiplying)


class Slow(io.BytesIO):
    """A file on a slow disk."""

    def write(self, data: Any) -> int:
        if len(data) > 1000:
            time.sleep(LONG_S)
        return super().write(data)


def simulate(steps: int, delays: Delays) -> None:
    state = np.random.default_rng(1).random((200, 200))
    for _ in range(steps):
        state = np.tanh(state @ state.T / 200)
        for delay in DELAYS:
            delays.run(delay)
        fathom.step()


def train(steps: int, delays: Delays) -> None:
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __len__(self) -> int:
            return 4 * steps

        def __getitem__(self, index: int) -> Any:
            if index % 4 == 0:
                time.sleep(LONG_S)
            return torch.ones(64)

    def batches() -> Iterator[Any]:
        loaded = iter(DataLoader(Rows(), 4))
        for _ in range(steps):
            start = time.time_ns()
            batch = next(loaded)
            delays.rows.append({"kind": "loading", "start_ns": start, "end_ns": time.time_ns()})
            yield batch

    def saving() -> None:
        torch.save({"state": torch.zeros(1000)}, Slow())

    def collecting() -> None:
        gc.collect()

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept: list[list[None]] = [[] for _ in range(100_000)]
    for batch in batches():
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        for delay in (*DELAYS, saving, collecting):
            delays.run(delay)
    del kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--numpy", action="store_true", help="without torch")
    parser.add_argument("--truth", type=Path, required=True)
    options = parser.parse_args()
    delays = Delays()
    gc.disable()  # it would collect within other delays
    (simulate if options.numpy else train)(options.steps, delays)
    options.truth.write_text(json.dumps(delays.rows))


if __name__ == "__main__":
    main()
