"""A training loop with delays of known length at known places, and the truth about them printed at the end.

    python planted.py --plant loader:20ms --plant python:10ms --plant checkpoint:50ms --plant gc:15ms

The loss is read at the end of each step, as loops that log do, so that the device is idle when a delay begins
and the delay's length is what it costs. `--plant item` is the exception: it reads a value while the device is
busy, which delays the host but costs the device nothing.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from common import Stopwatch, Transformer, arguments
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

KINDS = ("loader", "python", "checkpoint", "gc", "item")
FREE = {"item"}  # they hold up the host alone


class Plants:
    """The delays that were asked for, and how long each one really took."""

    def __init__(self, asked: dict[str, float]) -> None:
        self.asked = asked
        self.lengths: dict[str, list[float]] = defaultdict(list)
        self.garbage: Garbage | None = None

    @contextmanager
    def measured(self, kind: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.lengths[kind].append(1e3 * (time.perf_counter() - start))

    def truth(self) -> list[dict[str, object]]:
        return [
            {
                "kind": kind,
                "asked_ms": 1e3 * self.asked[kind],
                "costs": kind not in FREE,
                "lengths_ms": lengths,
            }
            for kind, lengths in self.lengths.items()
        ]


class Tokens(Dataset):
    """Random tokens; the first of every batch is slow to read."""

    def __init__(self, count: int, batch: int, length: int, plants: Plants) -> None:
        self.tokens = torch.randint(256, (count * batch, length))
        self.batch, self.plants = batch, plants

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> Tensor:
        if "loader" in self.plants.asked and index % self.batch == 0:
            with self.plants.measured("loader"):
                time.sleep(self.plants.asked["loader"])
        return self.tokens[index]


class SlowFile(io.BytesIO):
    """A file on a slow disk: the first write waits."""

    def __init__(self, delay: float) -> None:
        super().__init__()
        self.delay = delay

    def write(self, data: bytes) -> int:
        time.sleep(self.delay)
        self.delay = 0.0
        return super().write(data)


class Garbage:
    """So many objects that one collection takes as long as it was asked to; all older objects are frozen."""

    def __init__(self, seconds: float) -> None:
        gc.disable()  # as training loops do that choose when to collect
        gc.collect()
        gc.freeze()
        self.kept: list[list[None]] = [[] for _ in range(400_000)]
        each = min(self._collect() for _ in range(3)) / len(self.kept)
        self.kept = [[] for _ in range(int(seconds / each))]

    @staticmethod
    def _collect() -> float:
        start = time.perf_counter()
        gc.collect()
        return time.perf_counter() - start


def compute_in_python(seconds: float) -> None:
    """Keep the interpreter busy, as parsing or bookkeeping would."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def after_step(plants: Plants, loss: Tensor) -> None:
    """The work of a loop between two steps; each part only if it was requested."""
    asked = plants.asked
    if "python" in asked:
        smoothed = loss * 0.9
        if smoothed.is_cuda:
            torch.cuda.synchronize()
        with plants.measured("python"):
            compute_in_python(asked["python"])
        smoothed.add_(0.1)
    if "gc" in asked:
        plants.garbage = plants.garbage or Garbage(asked["gc"])
        with plants.measured("gc"):
            gc.collect()
    if "checkpoint" in asked:
        state = {"loss": loss.item()}
        with plants.measured("checkpoint"):
            torch.save(state, SlowFile(asked["checkpoint"]))


def sizes(options: argparse.Namespace) -> tuple[int, int, int, int]:
    """Width, layers, length and batch; a launch-bound model is deep, and thin."""
    if options.small:
        return 64, 2, 65, 4
    return (64, 16, 65, 4) if options.launch_bound else (512, 6, 257, 16)


def train(options: argparse.Namespace, plants: Plants) -> Stopwatch:
    width, layers, length, batch = sizes(options)
    model = Transformer(256, width, layers).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = Tokens(options.steps, batch, length, plants)
    watch = Stopwatch()
    for tokens in DataLoader(data, batch):
        loss = model(tokens.to(options.device))
        loss.backward()
        if "item" in plants.asked:
            with plants.measured("item"):
                loss.item()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        after_step(plants, loss.detach())
        watch.lap()
    return watch


def plant(text: str) -> tuple[str, float]:
    """`kind:20ms` as a kind and seconds; `item` needs no time."""
    kind, _, length = text.partition(":")
    if kind not in KINDS or (kind not in FREE and not length.endswith("ms")):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not one of {', '.join(KINDS)} with a time, as in loader:20ms"
        )
    return kind, float(length.removesuffix("ms") or 0) / 1e3


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], steps=200)
    parser.add_argument("--plant", type=plant, action="append", default=[], metavar="KIND:TIMEms")
    parser.add_argument(
        "--launch-bound", action="store_true", help="a model that the host launches too slowly"
    )
    parser.add_argument("--truth", type=Path, help="write the truth to this file instead of printing it")
    options = parser.parse_args()
    torch.manual_seed(0)
    plants = Plants(dict(options.plant))
    watch = train(options, plants)
    truth = json.dumps({"steps": options.steps, "plants": plants.truth()})
    options.truth.write_text(truth) if options.truth else print(truth)
    watch.save(options.times)


if __name__ == "__main__":
    main()
