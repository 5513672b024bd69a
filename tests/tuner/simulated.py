"""A simulated program: its step time under any settings is known, with noise and drift."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fathom.probe.knobs import SWITCHES
from fathom.recorder import Applied
from fathom.sounding import Manifest, Rank, Writer, conform
from fathom.tuner.running import Run, Steps, Switches
from tests.support import small_sounding
from tests.support.clocks import FakeClock

STEP_NS, START_S = 100e6, 3.0
Factor = Callable[[Applied], float]


class Simulated:
    """Stands in for `Runner`. `factor(setting)` is the relative step time, or a Run that failed.

    `off(setting)` is the relative error of its results. Every run of the simulation is in `ran`. Whole runs
    scatter by `between`, and a share of `disturbed` takes 1.8 times as long. `within(setting)` is the factor
    of settings that are switched on and off within a run.
    """

    def __init__(
        self,
        clock: FakeClock,
        factor: Callable[[Applied], Any],
        off: Factor = lambda _: 0.0,
        noise: float = 0.01,
        between: float = 0.0,
        disturbed: float = 0.0,
        within: Callable[[Applied], Any] | None = None,
    ) -> None:
        self.clock, self.factor, self.off, self.noise = clock, factor, off, noise
        self.between, self.disturbed, self.within = between, disturbed, within
        self.switches = Switches(5, 1, 3, 3)
        self.command, self.steps, self.ran = ["python", "train.py"], Steps(), list[Applied]()
        self.random = random.Random(1)

    def __call__(self, *_: Any) -> Simulated:
        return self

    def run(self, setting: Applied, patience_s: float, work: float = 1.0) -> Run:
        self.ran.append(setting)
        factor = self.factor(setting)
        if isinstance(factor, Run):
            self.clock.sleep(factor.seconds)
            return factor
        drift = 1 + 0.3 * math.sin(self.clock.ns / 1e9 / 200)
        ns = STEP_NS * factor * drift * self._luck() / work
        samples = [ns * math.exp(self.random.gauss(0, self.noise)) for _ in range(8)]
        seconds = START_S + 25 * ns / 1e9
        self.clock.sleep(seconds)
        loss = np.linspace(2, 1, 10) * (1 + self.off(setting))
        return Run("done", seconds, samples, {"loss": loss, "weights of optimizer 1": np.ones(50) * loss[-1]})

    def _luck(self) -> float:
        if not self.between:
            return 1.0
        hit = self.random.random() < self.disturbed
        return math.exp(self.random.gauss(0, self.between)) * (1.8 if hit else 1.0)

    def can_switch(self, setting: Applied) -> bool:
        return self.within is not None and bool(setting.acts) and set(setting.acts) <= set(SWITCHES)

    def switched(self, setting: Applied, patience_s: float) -> tuple[Run, Run]:
        assert self.within is not None
        factor, luck = self.within(setting), self._luck()
        if isinstance(factor, Run):
            self.clock.sleep(factor.seconds)
            return factor, factor
        sides = [
            [STEP_NS * of * luck * math.exp(self.random.gauss(0, self.noise)) for _ in range(6)]
            for of in (1.0, factor)
        ]
        seconds = START_S + 50 * STEP_NS * luck / 1e9
        self.clock.sleep(seconds)
        without, under = (Run("done", seconds, samples) for samples in sides)
        return without, under

    def cancel(self) -> None:
        pass

    def located(self, setting: Applied, patience_s: float, *_: Any) -> tuple[Run, list[Any]]:
        return self.run(setting, patience_s), []  # a simulated program has no source


class Compiling(Simulated):
    """Starts take `start_s`; the first run of each compiled form takes `first_s` more, others `later_s`."""

    start_s, first_s, later_s = START_S, 0.0, 0.0

    def run(self, setting: Applied, patience_s: float, work: float = 1.0) -> Run:
        known = any(ran.acts.get("compile") == setting.acts.get("compile") for ran in self.ran)
        compiling_s = self.later_s if known else self.first_s
        more_s = self.start_s - START_S + (compiling_s if "compile" in setting.acts else 0.0)
        if more_s > patience_s:
            self.clock.sleep(patience_s)
            return Run("too slow", patience_s, why="planted")
        self.clock.sleep(more_s)
        done = super().run(setting, patience_s - more_s, work)
        return replace(done, seconds=done.seconds + more_s)


def sounding(folder: Path) -> None:
    """Write the recording of the program, which trains with torch on a GPU and has a loader."""
    store = small_sounding.make(folder.with_name("made.fathom"))
    writer = Writer(folder)
    for table in ("steps", "kernels"):
        writer.write(0, table, conform(table, store.table(table, 0).collect()))
    loader = {"loader": 0, "workers": 0, "iterable": False}
    rank = Rank(rank=0, devices={0: "a device"}, facts={"loaders": [loader]})
    manifest = Manifest(
        name="before", command=["python", "train.py"], ranks=[rank], versions={"torch": "2.13"}
    )
    writer.finish(manifest, {"host": {"hostname": "here"}})
