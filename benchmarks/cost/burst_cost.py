"""What a burst with counters costs a step, within one process: stretches with it and without, A B B A.

    python benchmarks/cost/burst_cost.py record launch_bound --out out/bursts  # on the target, alone
    python benchmarks/cost/burst_cost.py record train_gpt --rest 1.5 --warm 0 --steps 4 --buffer 1024 \\
        --out out/bursts -- --width 768 --layers 12
    python benchmarks/cost/burst_cost.py summary out/bursts
    python benchmarks/cost/burst_cost.py summary benchmarks/results/bursts_earlier.jsonl  # other forms

On a busy host steps before a burst and in it differ by 10 % for the host's own reasons, so whole recordings
say little there. Here the program runs as it is; after each of its optimizer's steps a hook counts, and every
few steps samples of the first group of counters and records of the device's work are switched on or off, by
the same classes as in a recording. Stretches begin and end with an idle device, and all of their steps count.

What a burst needs beforehand takes most of a second, after which a launch-bound program is 40 % slower for a
while: `--warm` seconds of steps come before every stretch. What runs at its power limit is quicker after a
rest (a GPT step of 61.0 ms took 58.5): there `--rest` has every stretch begin after the same one. One Kineto
burst comes first, as in a recording, and a first one with counters; `after` is the ratio of steps after both,
with no burst for a while, to those before: what they leave behind.

Bursts are longer here than a recording's, so their buffer is larger. The first is rehearsed: it is decoded,
which tells whether the buffer is large enough, and written; later ones are dropped. `--only` switches one of
both.
`record` needs qualified counters (`fathom machine measure --only counters`) and no table library.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import runpy
import statistics
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from cost_commands import add_folder, append, device_name, keep, lines, run
from launcher import execute, pinned, script
from stretches import ORDERS, Quad, bounds

LINES = "bursts.jsonl"
WARM_UP, PLAIN = 60, 8  # steps; stretches without bursts in a row
WARM_S = 0.3
BUFFER_MIB = 512  # a quarter of a second of a hundred counters every 20 µs
PARTS = "sampling", "activities"
Stretch = tuple[float, list[float]]  # ms of a step, by an idle device; and of each as the host sees them


class Bursts(Protocol):
    """What is switched: `arm` before each, `(True)` begins one and `(False)` ends it, all with an idle
    device; `check` looks at the first."""

    def arm(self) -> None: ...

    def __call__(self, on: bool) -> None: ...

    def check(self) -> None: ...


@dataclass
class Stretches:
    """Called after each step: begins and ends stretches, `on` or not, and notes the length of their steps."""

    steps: int
    fours: int
    settle: Callable[[], None]
    burst: Bursts
    kineto: Callable[[], None]
    clock: Callable[[], int] = time.perf_counter_ns
    sleep: Callable[[float], None] = time.sleep
    draw: random.Random = field(default_factory=random.Random)
    rest_s: float = 0.0  # from the end of one stretch to the begin of the next
    warm_s: float = WARM_S  # of steps before each stretch
    most_s: float = math.inf  # after which no more fours begin
    before: list[float] = field(default_factory=list)  # ms of a step before anything was recorded
    between: list[float] = field(default_factory=list)  # and after a first burst, with no more of them
    noted: list[tuple[bool, float]] = field(default_factory=list)
    of_steps: list[list[float]] = field(default_factory=list)  # of each stretch that is noted
    ended: bool = False

    def __post_init__(self) -> None:
        self._until = self.clock() + 1e9 * self.most_s
        self._course = self._steps_between()
        next(self._course)

    def __call__(self) -> None:
        next(self._course, None)

    def _steps_between(self) -> Iterator[None]:
        """What is done between the steps: each yields to one."""
        for _ in range(WARM_UP):
            yield
        yield from self._plain(self.before)
        self.settle()
        self.kineto()
        yield from self._stretch(on=True)
        self.burst.check()
        yield from self._plain(self.between)
        while len(self.noted) < 4 * self.fours and self.clock() < self._until:
            for on in self.draw.choice(ORDERS):
                took, each = yield from self._stretch(on)
                self.noted.append((on, took))
                self.of_steps.append(each)
        self.ended = True
        yield

    def _plain(self, noted: list[float]) -> Iterator[None]:
        for _ in range(PLAIN):
            noted.append((yield from self._stretch(on=False))[0])

    def _stretch(self, on: bool) -> Generator[None, None, Stretch]:
        self.settle()
        self._rest(on)
        begun = self.clock()
        while self.clock() - begun < 1e9 * self.warm_s:
            yield
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
        return took, [round((end - begin) / 1e6, 4) for begin, end in pairwise(marks)]

    def _rest(self, on: bool) -> None:
        begun = self.clock()
        if on:
            self.burst.arm()
        self.sleep(max(0, self.rest_s - (self.clock() - begun) / 1e9))


def child(options: argparse.Namespace) -> None:
    """Inside the measured process: the program, with a hook on its optimizer's steps."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from fathom.machine import known_machine

    counters = known_machine().get("counters")
    if not counters:
        sys.exit("no counters are known here; qualify them with `fathom machine measure --only counters`")
    burst = Burst(torch, counters, options.out / "trace.json", options.buffer << 20, options.only)
    done = torch.cuda.synchronize, burst, burst.kineto
    limits = {"rest_s": options.rest, "warm_s": options.warm, "most_s": options.seconds}
    stretches = Stretches(options.steps, options.fours, *done, **limits)

    def counted(*_: Any) -> None:
        stretches()
        if stretches.ended:
            raise KeyboardInterrupt

    register_optimizer_step_post_hook(counted)
    file = script(options.program)
    sys.path.insert(0, str(file.parent))
    sys.argv = [str(file), *options.arguments]
    try:
        runpy.run_path(str(file), run_name="__main__")
    except KeyboardInterrupt:
        pass
    if not stretches.ended:
        sys.exit(f"{options.program} ended too early; give it more steps after --")
    row = {
        "program": options.program,
        "device": device_name(),
        "before_ms": stretches.before,
        "between_ms": stretches.between,
        "rest_s": options.rest,
        "warm_s": options.warm,
        "only": options.only,
        "noted": stretches.noted,
        "steps_ms": stretches.of_steps,
        "samples": burst.samples,
        "records": burst.records,
    }
    append(options.out / LINES, row, shown=False)


class Burst:
    """What a recording does in its bursts with counters, and in one of the timeline."""

    def __init__(
        self, torch: Any, counters: dict[str, Any], file: Path, buffer_bytes: int, only: Sequence[str] = PARTS
    ) -> None:
        self._torch, self._names, self._file = torch, counters["groups"][0], file
        self._interval = int(counters.get("interval_ns") or 20_000)
        self._buffer_bytes, self._only = buffer_bytes, only
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
            self._activities.enable()
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
    """Run the program in a process of its own: one line in the output folder's `bursts.jsonl`."""
    options.out.mkdir(parents=True, exist_ok=True)
    own = ["child", options.program, "--out", str(options.out.resolve())]
    numbers = "steps", "fours", "rest", "warm", "buffer", "seconds"
    own += [f"--{name}={getattr(options, name)}" for name in numbers] + ["--only", *options.only]
    command = [sys.executable, __file__, *own, "--", *options.arguments]
    os.environ["TEARDOWN_CUPTI"] = "1"
    outcome = execute(pinned(command, options.cores), options.out / "log.txt")
    if outcome.status:
        log = options.out / "log.txt"
        sys.exit(f"{options.program} failed, see {log}: {log.read_text().splitlines()[-1:]}")
    print(told(lines(options.out / LINES)[-1:]), flush=True)


def log_ratios(noted: Sequence[tuple[bool, float]]) -> list[float]:
    """Of each four of stretches: steps inside bursts over steps without."""
    found = []
    for first in range(0, len(noted) - 3, 4):
        sides = {on: [ms for was, ms in noted[first : first + 4] if was == on] for on in (True, False)}
        found.append(Quad(sides[True], sides[False]).log_ratio)
    return found


def of_medians(row: dict[str, Any]) -> list[float]:
    """The same of each stretch's median step by the host, which what else the host does moves less; of a step
    that the device bounds it says nothing, for the host runs ahead. Earlier runs kept no steps."""
    stretches = zip(row["noted"], row.get("steps_ms", []), strict=False)
    return log_ratios([(on, statistics.median(steps)) for (on, _), steps in stretches])


def told(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of one program's runs; intervals are of 95 %."""
    before = [statistics.median(row["before_ms"]) for row in runs]
    without = [statistics.median(ms for on, ms in row["noted"] if not on) for row in runs]
    fours, medians = [log_ratios(row["noted"]) for row in runs], list(filter(None, map(of_medians, runs)))
    return {
        **{key: runs[0][key] for key in ("program", "device", "only")},
        "runs": len(runs),
        "fours": sum(len(row["noted"]) // 4 for row in runs),
        **ratio(fours),
        "median": ratio(fours, statistics.median),
        "of_medians": ratio(medians) if medians else None,
        "before_ms": before,
        "without_ms": without,
        "after": [
            statistics.median(row["between_ms"]) / was
            for row, was in zip(runs, before, strict=True)
            if "between_ms" in row
        ],
        **{name: [row[name] for row in runs] for name in ("samples", "records")},
    }


def ratio(
    runs: list[list[float]], statistic: Callable[[Sequence[float]], float] = statistics.fmean
) -> dict[str, float]:
    """The mean of logarithms, or their median, as a ratio."""
    return dict(zip(("ratio", "low", "high"), bounds(runs, statistic), strict=True))


def summary(options: argparse.Namespace) -> None:
    """Write what the runs in the output folder amount to; of a file with runs print it."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in lines(options.out / LINES if options.out.is_dir() else options.out):
        found.setdefault((row["program"], row["device"], *row["only"]), []).append(row)
    figures = [told(runs) for runs in found.values()]
    if options.out.is_dir():
        keep("burst_cost.json", figures)
    else:
        print(json.dumps(figures, indent=1))


def add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", help="of benchmarks/programs or examples, with an optimizer")
    parser.add_argument("--cores", help="run on these alone, as in 2-5")
    parser.add_argument("--fours", type=int, default=15)
    parser.add_argument("--steps", type=int, default=8, help="of a stretch, that count")
    parser.add_argument("--rest", type=float, default=0.0, help="seconds between stretches")
    parser.add_argument("--warm", type=float, default=WARM_S, help="seconds of steps before each stretch")
    parser.add_argument("--buffer", type=int, default=BUFFER_MIB, help="MiB in which counters are sampled")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="what is switched")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no more fours after that")
    parser.add_argument("--out", type=Path, default=Path("out/bursts"))


def main() -> None:
    run(__doc__, {record: add_record, summary: add_folder, child: add_record})


if __name__ == "__main__":
    main()
