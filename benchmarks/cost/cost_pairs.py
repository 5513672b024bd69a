"""Pairs of a program untouched and the same recorded, in batches that start together and then take turns."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from launcher import RECORDING, pinned, records, start, started_by
from turn_ratio import Run, ratios_of_turns, turns_of
from turns import EndedBadlyError, Pair, Side, kill, take_turns

WARM_UP = 60  # steps that are compared nowhere: compilation, caches, settling


class FailedError(Exception):
    """A pair without a result, with the reason."""


@dataclass(frozen=True)
class Place:
    """Where a pair runs: its folder, its cores and GPU where those are chosen, and which side is first."""

    folder: Path
    cores: str | None
    gpu: str | None
    recorded_first: bool

    @property
    def environment(self) -> dict[str, str]:
        return {} if self.gpu is None else {"CUDA_VISIBLE_DEVICES": self.gpu}


@dataclass(frozen=True)
class Places:
    """Places of pairs by number: dealt out to the GPUs in turn, `batch` at once on each.

    The sets of cores are dealt out too; each GPU goes round those that it got, which may overlap, because
    one pair of a GPU runs at a time. Raises FailedError where two GPUs would share a core.
    """

    out: Path
    cores: Sequence[str] = ()
    gpus: Sequence[str] = ()
    batch: int = 1

    def __post_init__(self) -> None:
        if 0 < len(self.cores) < self.lanes:
            raise FailedError(
                f"{self.lanes} GPUs need as many sets of cores, and there are {len(self.cores)}"
            )
        taken = [
            set().union(*map(core_numbers, self.cores[lane :: self.lanes])) for lane in range(self.lanes)
        ]
        if sum(map(len, taken)) > len(set().union(*taken)):
            raise FailedError(f"GPUs share cores; deal out other sets than {' '.join(self.cores)}")

    @property
    def lanes(self) -> int:
        return max(len(self.gpus), 1)

    def batches(self, pairs: int) -> Iterator[range]:
        """The numbers of each batch."""
        size = self.lanes * self.batch
        return (range(first, min(first + size, pairs)) for first in range(0, pairs, size))

    def __getitem__(self, number: int) -> Place:
        """Either side is first by turns: on a GPU from pair to pair, and at a time from GPU to GPU."""
        turn, lane = divmod(number, self.lanes)
        size = self.lanes * self.batch
        folder = self.out / ("run" if size == 1 else f"run-{number % size}")
        cores = self.cores[lane :: self.lanes]
        gpu = self.gpus[lane] if self.gpus else None
        return Place(folder, cores[turn % len(cores)] if cores else None, gpu, bool((turn + lane) % 2))


def core_numbers(cores: str) -> set[int]:
    """The cores of a list as `taskset` takes it, such as 2-5,8 or 0-14:2."""
    names: set[int] = set()
    for part in cores.split(","):
        span, _, stride = part.partition(":")
        first, _, last = span.partition("-")
        names |= set(range(int(first), int(last or first) + 1, int(stride or 1)))
    return names


async def run_batch(
    program: str, arguments: list[str], recorded: list[str], places: Sequence[Place]
) -> list[tuple[Run, Run]]:
    """At each place a program untouched and under Fathom, step by step in turns. Raises FailedError."""
    pairs: list[list[Side]] = [[] for _ in places]
    try:
        for place, pair in zip(places, pairs, strict=True):
            shutil.rmtree(place.folder, ignore_errors=True)
            place.folder.mkdir(parents=True)
            for name, ways in (("untouched", None), ("recorded", recorded)):
                pair.append(started(program, arguments, ways, place, name))
        lanes = in_lanes(places, pairs)
        await take_turns(lanes)
    except EndedBadlyError as error:
        raise FailedError(f"failed: see {error.side.log}") from None
    finally:
        kill([side.process for side in chain(*pairs)])
    if max(map(len, lanes)) > 1 and not all(side.begun.exists() for side in chain(*pairs)):
        raise FailedError("does not say when its steps begin: give it batches of one pair")
    return [runs(place, *pair) for place, pair in zip(places, pairs, strict=True)]


def started(program: str, arguments: list[str], ways: list[str] | None, place: Place, name: str) -> Side:
    begun, times, log = (place.folder / f"{name}.{ending}" for ending in ("begun", "json", "txt"))
    command = started_by(program, [*arguments, "--times", str(times)], place.folder, ways)
    command = pinned(command, place.cores)
    process = start(command, log, session=True, BEGUN=str(begun), **place.environment)
    return Side(process, begun, times, log)


def in_lanes(places: Sequence[Place], pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The pairs of each GPU, who is first before the other."""
    lanes: dict[str | None, list[Pair]] = {}
    for place, pair in zip(places, pairs, strict=True):
        lanes.setdefault(place.gpu, []).append(pair[::-1] if place.recorded_first else pair)
    return list(lanes.values())


def runs(place: Place, untouched: Side, recorded: Side) -> tuple[Run, Run]:
    phases = phases_of(records(place.folder / RECORDING))
    plain, with_fathom = (json.loads(side.over.read_text()) for side in (untouched, recorded))
    return (
        Run(plain["steps_s"], {}, plain.get("began_s")),
        Run(with_fathom["steps_s"], phases, with_fathom.get("began_s")),
    )


def phases_of(result: Iterable[dict[str, Any]]) -> dict[int, str]:
    """Phase of each step."""
    runs = (record for record in result if record.get("t") == "marks")
    return {run["k"] + place: run["phase"] for run in runs for place in range(len(run["ns"]))}


class Compared(NamedTuple):
    """The result of a pair: `ratio` is of the medians of whole runs, `ratio_of_turns` None without turns."""

    steps: int
    untouched_ms: float
    recorded_ms: float
    ratio: float
    turns: int
    ratio_of_turns: float | None


def compared(untouched: Run, recorded: Run, phase: str) -> Compared:
    """The steps of both runs, where the recorded one was in `phase`.

    A mark may lie inside the program's own step, so a step counts only if the one before was there too.
    Raises FailedError.
    """
    last = min(len(untouched.steps_s), len(recorded.steps_s))
    chosen = [
        k for k in range(WARM_UP, last) if recorded.phases.get(k) == recorded.phases.get(k - 1) == phase
    ]
    if not chosen:
        raise FailedError(f"no step after the first {WARM_UP} was recorded in the phase '{phase}'")
    plain = statistics.median(untouched.steps_s[WARM_UP:last])
    with_fathom = statistics.median(recorded.steps_s[k] for k in chosen)
    ratios = ratios_of_turns(turns_of(recorded, set(chosen)), turns_of(untouched, range(WARM_UP, last)))
    of_turns = statistics.median(ratios) if ratios else None
    return Compared(len(chosen), 1e3 * plain, 1e3 * with_fathom, with_fathom / plain, len(ratios), of_turns)
