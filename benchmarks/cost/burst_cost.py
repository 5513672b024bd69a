"""Cost of a burst with counters per step, within one process: steps in bursts over those beside them.

    python benchmarks/cost/burst_cost.py record launch_bound --out out/bursts  # on the target, alone
    python benchmarks/cost/burst_cost.py record train_gpt --rest 1.5 --warm 0 --steps 4 --buffer 1024 \\
        --out out/bursts -- --width 768 --layers 12
    python benchmarks/cost/burst_cost.py summary out/bursts

On a busy host a step differs from those of a moment ago by 10 % for the host's own reasons, so whole
recordings say little there. Here the program runs as it is; after each of its optimizer's steps a hook
counts, and every now and then samples of the first group of counters and records of the device's work are
switched on and off, by the same classes as in a recording. Each burst has a stretch of clean steps right
before it and another after it, and is given as a ratio to their geometric mean. All stretches begin and end
with an idle device, and all of their steps count; those between the burst's end, which takes milliseconds,
and the stretch after it do not.

One time in four nothing is switched on. The ratio of these shams is the effect of the order alone, and
`over_sham` is the ratio without that. `--warm` seconds of steps come after what a burst needs beforehand,
which takes up to a second and leaves the host slow. What runs at its power limit is quicker after a rest (a
GPT step of 61.0 ms took 58.5): there `--rest` has every burst come after the same one. One Kineto burst
comes first, as in a recording, and a first one with counters; `after` is the ratio of steps after both,
with no burst for a while, to those before: what they leave behind.

Bursts are longer here than a recording's, so their buffer is larger. The first is rehearsed: it is decoded,
which shows whether the buffer is large enough, and written; later ones are dropped. `--only` switches one
of both. `record` needs qualified counters (`fathom machine measure --only counters`) and no table library.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import runpy
import statistics
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from cost_commands import add_folder, append, device_name, keep, lines, run
from launcher import as_started, execute, pinned
from stretches import RESAMPLES, bounds

LINES = "bursts.jsonl"
WARM_UP, PLAIN = 60, 8  # steps; stretches without bursts in a row
WARM_S = 0.3
SHAM = 0.25  # of what is tried
BETWEEN = 2  # steps from the end of a burst to the stretch after it
BUFFER_MIB = 512  # a quarter of a second of a hundred counters every 20 µs
PARTS = "sampling", "activities"


class Stretch(NamedTuple):
    """ms of a step: by an idle device at both ends, and of each as the host sees them."""

    ms: float
    steps: list[float]


class Tried(NamedTuple):
    """A burst, or a sham, and the stretches beside it."""

    sham: bool
    before: Stretch
    inside: Stretch
    after: Stretch


class Bursts(Protocol):
    """A switch: `arm` before each, `(True)` begins one and `(False)` ends it, all with an idle
    device; `check` looks at the first."""

    def arm(self) -> None: ...

    def __call__(self, on: bool) -> None: ...

    def check(self) -> None: ...


@dataclass
class Course:
    """Called after each step: begins and ends stretches and bursts, and notes the length of their steps."""

    steps: int
    most: int
    settle: Callable[[], None]
    burst: Bursts
    kineto: Callable[[], None]
    clock: Callable[[], int] = time.perf_counter_ns
    sleep: Callable[[float], None] = time.sleep
    draw: random.Random = field(default_factory=random.Random)
    rest_s: float = 0.0  # before each burst
    warm_s: float = WARM_S  # of steps after it
    most_s: float = math.inf  # after which nothing more is tried
    before: list[float] = field(default_factory=list)  # ms of a step before anything was recorded
    between: list[float] = field(default_factory=list)  # and after a first burst, with no more of them
    tried: list[Tried] = field(default_factory=list)
    ended: bool = False

    def __post_init__(self) -> None:
        self._until = self.clock() + 1e9 * self.most_s
        self._course = self._steps_between()
        next(self._course)

    def __call__(self) -> None:
        next(self._course, None)

    def _steps_between(self) -> Iterator[None]:
        """Work between the steps: each yields to one."""
        for _ in range(WARM_UP):
            yield
        yield from self._plain(self.before)
        self.settle()
        self.kineto()
        self.burst.arm()
        yield from self._stretch(on=True)
        self.burst.check()
        yield from self._plain(self.between)
        while len(self.tried) < self.most and self.clock() < self._until:
            self.tried.append((yield from self._try(sham=self.draw.random() < SHAM)))
        self.ended = True
        yield

    def _plain(self, noted: list[float]) -> Iterator[None]:
        for _ in range(PLAIN):
            noted.append((yield from self._stretch()).ms)

    def _try(self, sham: bool) -> Generator[None, None, Tried]:
        self.settle()
        self._rest()
        begun = self.clock()
        while self.clock() - begun < 1e9 * self.warm_s:
            yield
        before = yield from self._stretch()
        inside = yield from self._stretch(on=not sham)
        for _ in range(BETWEEN):
            yield
        after = yield from self._stretch()
        return Tried(sham, before, inside, after)

    def _rest(self) -> None:
        begun = self.clock()
        self.burst.arm()
        self.sleep(max(0, self.rest_s - (self.clock() - begun) / 1e9))

    def _stretch(self, on: bool = False) -> Generator[None, None, Stretch]:
        self.settle()
        if on:
            self.burst(True)
        marks = [self.clock()]
        for _ in range(self.steps):
            yield
            marks.append(self.clock())
        self.settle()
        took = (self.clock() - marks[0]) / self.steps / 1e6
        if on:
            self.burst(False)
        return Stretch(took, [round((end - begin) / 1e6, 4) for begin, end in pairwise(marks)])


def child(options: argparse.Namespace) -> None:
    """Inside the measured process: the program, with a hook on its optimizer's steps."""
    import torch

    burst = Burst(torch, counters_here(), options.out / "trace.json", options.buffer << 20, options.only)
    done = torch.cuda.synchronize, burst, burst.kineto
    limits = {"rest_s": options.rest, "warm_s": options.warm, "most_s": options.seconds}
    course = Course(options.steps, options.bursts, *done, **limits)
    follow(course, options.program, options.arguments)
    row = {
        "program": options.program,
        "device": device_name(),
        "before_ms": course.before,
        "between_ms": course.between,
        "rest_s": options.rest,
        "warm_s": options.warm,
        "only": options.only,
        "tried": course.tried,
        "samples": burst.samples,
        "records": burst.records,
    }
    append(options.out / LINES, row, shown=False)


def counters_here() -> dict[str, Any]:
    """The counters that were qualified on this machine."""
    from fathom.machine import known_machine

    counters: dict[str, Any] | None = known_machine().get("counters")
    if not counters:
        sys.exit("no counters are known here; qualify them with `fathom machine measure --only counters`")
    return counters


def follow(course: Course, program: str, arguments: list[str]) -> None:
    """Run the program in this process until the course has ended."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def counted(*_: Any) -> None:
        course()
        if course.ended:
            raise KeyboardInterrupt

    register_optimizer_step_post_hook(counted)
    try:
        runpy.run_path(as_started(program, arguments), run_name="__main__")
    except KeyboardInterrupt:
        pass
    if not course.ended:
        sys.exit(f"{program} ended too early; give it more steps after --")


class Burst:
    """The switches of a recording in its bursts with counters, and in one of the timeline."""

    def __init__(
        self, torch: Any, counters: dict[str, Any], file: Path, buffer_bytes: int, only: Sequence[str] = PARTS
    ) -> None:
        from fathom.probe.counters.activities import launch

        self._torch, self._names, self._file = torch, counters["groups"][0], file
        self._interval = int(counters.get("interval_ns") or 20_000)
        self._buffer_bytes, self._only = buffer_bytes, only
        self.first = partial(launch, torch.cuda)
        self._activities: Any = None
        self._collector: Any = None
        self.samples = self.records = 0

    def arm(self) -> None:
        """Make ready what has to be."""
        from fathom.probe.counters.activities import activities
        from fathom.probe.counters.cupti import CuptiCollector

        self._activities = activities()
        if self._activities is None:
            sys.exit("the process has loaded no libcupti that is known")
        if not self._activities.ready(self._torch.cuda.synchronize):
            sys.exit("another profiler holds CUPTI; set TEARDOWN_CUPTI=1")
        if "sampling" not in self._only:
            return
        if self._collector is None:
            self._collector = CuptiCollector(self._torch.cuda.current_device(), self._buffer_bytes)
            self._collector.open()
        self._collector.configure(self._names, self._interval)

    def __call__(self, on: bool) -> None:
        """Begin, or end."""
        if "activities" in self._only and on:
            self._activities.enable(self.first)
        if self._collector is not None:
            self._collector.start() if on else self._collector.stop()
        if "activities" in self._only and not on:
            self._activities.disable()

    def check(self) -> None:
        """Write and decode: raises OverflowedError where the buffer was too small."""
        self.records = self._activities.save(str(self._file))
        if self._collector is not None:
            self.samples = sum(chunk.populated for chunk in self._collector.chunks())

    def kineto(self) -> None:
        """Trace for a moment."""
        from fathom.probe.kineto import Kineto

        traced = Kineto()
        traced.prepare()
        traced.enable()
        self._torch.ones(8, device="cuda").sum()
        traced.disable()
        traced.drop()


def record(options: argparse.Namespace) -> None:
    """Run the program in a separate process: one line in the output folder's `bursts.jsonl`."""
    options.out.mkdir(parents=True, exist_ok=True)
    own = ["child", options.program, "--out", str(options.out.resolve())]
    numbers = "steps", "bursts", "rest", "warm", "buffer", "seconds"
    own += [f"--{name}={getattr(options, name)}" for name in numbers] + ["--only", *options.only]
    command = [sys.executable, __file__, *own, "--", *options.arguments]
    os.environ["TEARDOWN_CUPTI"] = "1"
    outcome = execute(pinned(command, options.cores), options.out / "log.txt")
    if outcome.status:
        log = options.out / "log.txt"
        sys.exit(f"{options.program} failed, see {log}: {log.read_text().splitlines()[-1:]}")
    print(reported(lines(options.out / LINES)[-1:]), flush=True)


def reported(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of one program's runs; intervals are of 95 %."""
    result = [
        [Tried(sham, *(Stretch(*item) for item in three)) for sham, *three in run["tried"]] for run in runs
    ]
    bursts, shams = (
        [[item for item in run if item.sham is sham] for run in result] for sham in (False, True)
    )
    before = [statistics.median(run["before_ms"]) for run in runs]
    return {
        **{key: runs[0][key] for key in ("program", "device", "only")},
        "runs": len(runs),
        "bursts": sum(map(len, bursts)),
        "shams": sum(map(len, shams)),
        **(ratio(logs(bursts)) or {}),
        "median": ratio(logs(bursts), statistics.median),
        "of_medians": ratio(logs(bursts, of_medians)),
        "of_first_steps": ratio(logs(bursts, mean, first)),
        "sham": ratio(logs(shams)),
        "over_sham": over(result),
        "before_ms": before,
        "beside_ms": [statistics.median([item.before.ms for item in run]) for run in result],
        "after": [statistics.median(run["between_ms"]) / was for run, was in zip(runs, before, strict=True)],
        **{name: [run[name] for run in runs] for name in ("samples", "records")},
    }


def mean(stretch: Stretch) -> float:
    """By the device."""
    return stretch.ms


def of_medians(stretch: Stretch) -> float:
    """By the host, which what else it does moves less; of a step that the device bounds it says nothing, for
    the host runs ahead."""
    return statistics.median(stretch.steps)


def first(stretch: Stretch) -> float:
    """Its first step alone, by the host."""
    return stretch.steps[0]


def logs(
    runs: Sequence[Sequence[Tried]],
    beside: Callable[[Stretch], float] = mean,
    inside: Callable[[Stretch], float] | None = None,
) -> list[list[float]]:
    """Of each run that has any: steps inside over those beside, by these lengths; `inside` as `beside`."""
    own = inside or beside
    result = [
        [_log(beside(item.before), own(item.inside), beside(item.after)) for item in run] for run in runs
    ]
    return [run for run in result if run]


def _log(before: float, inside: float, after: float) -> float:
    return math.log(inside) - (math.log(before) + math.log(after)) / 2


def ratio(
    runs: list[list[float]], statistic: Callable[[Sequence[float]], float] = statistics.fmean
) -> dict[str, float] | None:
    """The mean of logarithms, or their median, as a ratio."""
    return dict(zip(("ratio", "low", "high"), bounds(runs, statistic), strict=True)) if runs else None


def over(runs: Sequence[Sequence[Tried]]) -> dict[str, float] | None:
    """Bursts over shams, of runs with both; the interval from drawing runs and what each tried anew."""
    sides = [[logs([[item for item in run if item.sham is sham]]) for sham in (False, True)] for run in runs]
    pairs = [(bursts[0], shams[0]) for bursts, shams in sides if bursts and shams]
    if not pairs:
        return None
    draw = np.random.default_rng(0)
    drawn = [
        _difference([[draw.choice(side, len(side)) for side in pairs[run]] for run in chosen])
        for chosen in draw.integers(len(pairs), size=(RESAMPLES, len(pairs)))
    ]
    said = _difference(pairs), *np.percentile(drawn, [2.5, 97.5])
    return {name: float(np.exp(log)) for name, log in zip(("ratio", "low", "high"), said, strict=True)}


def _difference(pairs: Sequence[Sequence[Any]]) -> float:
    bursts, shams = (np.concatenate(side).mean() for side in zip(*pairs, strict=True))
    return float(bursts - shams)


def summary(options: argparse.Namespace) -> None:
    """Write what the runs in the output folder amount to."""
    result: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in lines(options.out / LINES):
        result.setdefault((row["program"], row["device"], *row["only"]), []).append(row)
    keep("burst_cost.json", [reported(runs) for runs in result.values()])


def add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", help="of benchmarks/programs or examples, with an optimizer")
    parser.add_argument("--cores", help="run on these alone, as in 2-5")
    parser.add_argument("--bursts", type=int, default=60, help="at most, shams included")
    parser.add_argument("--steps", type=int, default=8, help="of a stretch, that count")
    parser.add_argument("--rest", type=float, default=0.0, help="seconds before each burst")
    parser.add_argument("--warm", type=float, default=WARM_S, help="seconds of steps after that")
    parser.add_argument("--buffer", type=int, default=BUFFER_MIB, help="MiB in which counters are sampled")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="the part to switch")
    parser.add_argument("--seconds", type=float, default=math.inf, help="try nothing more after that")
    parser.add_argument("--out", type=Path, default=Path("out/bursts"))


def main() -> None:
    run(__doc__, {record: add_record, summary: add_folder, child: add_record})


if __name__ == "__main__":
    main()
