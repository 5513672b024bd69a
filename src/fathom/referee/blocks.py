"""One block: a fresh process of one side, its samples, and what was wrong with them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, Protocol

import numpy as np

from fathom.gauges.conditions import DOUBTFUL, Sensors
from fathom.referee.compare.decode import Saved
from fathom.referee.samples import Block
from fathom.referee.settings import Settings
from fathom.referee.sides import Sides
from fathom.referee.verdict import Reason
from fathom.referee.worker import SideError, Worker
from fathom.units import NS_PER_MS, NS_PER_S

WARM, COLD = "warm", "cold"
LEAST, MOST = 8, 60  # samples of a block
SAMPLE_NS = 50e3  # a sample is this long at least, where the calls' inputs find room
MOST_CALLS, MOST_INPUTS = 64, 256 * 2**20
CHECK_NS, MOST_REPEATS, LOOKS = 20e6, 2**20, 4  # of the samples that the parent times too
SLACK_NS, SLACK = 3e6, 0.35  # that the parent's clock may show more
WARM_UPS = 3
STAY = 2  # of the first LEAST samples lie at one place in a GPU's memory: a cache that goes by address shows
LONG_NS = 50e6  # of calls that take longer each is a sample
LOOK_NS = 20_000_000  # between two looks at the sensors
SURE = 1e-3  # a share of the mean, its standard error: more samples of this process would tell no more


@dataclass(frozen=True)
class Seeds:
    """Seeds by what they are for, so that both sides of a round get the same."""

    drawn: int

    def __call__(self, *purpose: object) -> int:
        return random.Random(f"{self.drawn} {purpose}").randrange(1, 2**31)


class Sampler(Protocol):
    """Whatever times one side."""

    def block(self, side: str, seeds: Seeds, chosen: float, known: Saved | None = None) -> Block:
        """A block. `seeds` are the same for both sides of a round; `chosen` (0 to 1) tells which sample's
        result to keep; where it is `known`, which the other side gave, that is kept. Raises SideError."""
        ...


class ProcessSampler:
    """Times callables in fresh processes; the first block decides how many calls make a sample."""

    def __init__(self, sides: Sides, settings: Settings, device: str, input_bytes: int) -> None:
        self._sides, self._settings, self._device = sides, settings, device
        self._most_calls = max(1, min(MOST_CALLS, MOST_INPUTS // max(input_bytes, 1)))
        self._calls: int | None = None
        self._moves = False
        self._sensors = Sensors() if device == "cuda" else None
        self._look, self._look_ns = dict[str, float](), -LOOK_NS

    @property
    def conditions(self) -> tuple[str, ...]:
        """Of the cache: both on a GPU; on a processor only what it is."""
        return (WARM, COLD) if self._device == "cuda" else ("",)

    def block(self, side: str, seeds: Seeds, chosen: float, known: Saved | None = None) -> Block:
        """Prepare beside others; then, alone, let both clocks time one long sample, and take samples.

        Raises SideError."""
        found, turn = Block(), self._sides.turn
        with self._sides.start(side) as worker:
            on_gpu = self._device == "cuda"  # whose kernels load when first launched, also those of samples
            for number in range(1, WARM_UPS):
                seed = seeds("warm-up", number)
                self._warm_up(worker, seed, latency="included", cold=on_gpu, check=on_gpu)
            worker.ask("hold", index=0, seed=seeds("warm-up", 1))  # a backward pass may have to be compiled
            with turn.alone():
                per_call = self._warm_up(worker, seeds("warm-up", 0), latency=self._settings.latency)
                self._calls = self._calls or self._enough(per_call)
                self._moves = self._device == "cuda" and per_call < LONG_NS
                found.reasons += self._clocks_agree(worker, per_call)
                for condition in self.conditions:
                    self._sample(worker, seeds, condition, chosen, found)
            if found.held is not None:
                found.kept = found.held, self._sides.held(worker, known)
            found.reasons += [Reason(*pair) for pair in worker.ask("changed")]
        return found

    def _go(self, worker: Worker, **options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = worker.ask("go", latency=self._settings.latency, **options)
        return answer

    def _warm_up(self, worker: Worker, seed: int, **options: Any) -> float:
        """Nanoseconds of one call."""
        worker.ask("place", seeds=[seed])
        return float(worker.ask("go", **options)["ns"])

    def _move(self, worker: Worker, seeds: list[int]) -> int:
        """To other memory; the call that has to allocate there what it needs is no sample. Nanoseconds."""
        worker.ask("place", seeds=seeds, elsewhere=True)
        moved = worker.waited_ns
        worker.ask("go", latency="included")
        return moved + worker.waited_ns

    def _enough(self, per_call_ns: float) -> int:
        """Calls of one sample."""
        return max(1, min(self._most_calls, ceil(SAMPLE_NS / max(per_call_ns, 1))))

    def _clocks_agree(self, worker: Worker, per_call_ns: float) -> list[Reason]:
        """A sample long enough for this process's clock to say how long it was; other work may disturb it,
        so one of a few has to agree."""
        repeat = max(1, min(MOST_REPEATS, ceil(CHECK_NS / max(per_call_ns, 1))))
        looks = 0
        while looks < LOOKS:
            told: dict[str, Any] = worker.ask("go", latency="included", repeat=repeat)
            waited = worker.waited_ns
            claimed = told.get("host_ns", told["ns"]) + told.get("copied_ns", 0)
            if waited < CHECK_NS and repeat < MOST_REPEATS:
                repeat *= 2
                continue
            looks += 1
            if waited - claimed <= SLACK_NS + SLACK * claimed:
                return []
        claimed_ms, waited_ms = claimed / NS_PER_MS, waited / NS_PER_MS
        text = f"it claims {claimed_ms:.1f} ms for what took {waited_ms:.1f} ms by the referee's clock"
        return [Reason("patched-timer", text)]

    def _sample(self, worker: Worker, seeds: Seeds, condition: str, chosen: float, found: Block) -> None:
        taken: list[dict[str, Any]] = []
        calls = 1 if condition == COLD else self._calls or 1  # a second call would find what the first left
        most = MOST if self._settings.decides(condition) else LEAST
        left_ns, clocks = NS_PER_S * self._settings.block_s, list[dict[str, float]]()
        while len(taken) < LEAST or (len(taken) < most and left_ns > 0 and not sure(taken)):
            number = len(taken)
            stays = number % STAY if number < LEAST else 0
            if self._moves and not stays:
                left_ns -= self._move(worker, [seeds(condition, number, n, "moved") for n in range(calls)])
            batch = [seeds(condition, number, call) for call in range(calls)]
            worker.ask("place", seeds=batch)
            prepared = worker.waited_ns
            with_check = number == 0 or number == int(chosen * LEAST)
            sample = self._go(worker, cold=condition == COLD, check=with_check)
            look = self._looked()
            clocks.append(look)
            taken.append(sample | {"stays": stays, "reasons": int(look.get("reasons", 0))})
            if sample.get("late"):
                found.reasons.append(Reason(sample["late"], "its result changed after its time was taken"))
            if number == int(chosen * LEAST) and condition != WARM:
                index = int(chosen * 1e6) % len(batch)
                found.held = batch[index]
                worker.ask("hold", index=index, seed=found.held)
            left_ns -= prepared + worker.waited_ns
        self._count(taken, condition, calls, clocks, found)

    def _looked(self) -> dict[str, float]:
        """What the sensors say, asked at most every LOOK_NS: the driver may take longer than a sample."""
        now = self._sides.turn.now_ns()
        if self._sensors is not None and now - self._look_ns >= LOOK_NS:
            self._look, self._look_ns = self._sensors.read("sm_clock_mhz", "reasons"), now
        return self._look

    def _count(
        self,
        taken: list[dict[str, Any]],
        condition: str,
        calls: int,
        clocks: list[dict[str, float]],
        found: Block,
    ) -> None:
        good, dropped = undisturbed(taken)
        found.discarded += dropped
        ahead = self._device == "cuda" and self._settings.latency == "removed"
        if ahead and not all(sample["queued"] for sample in good):
            found.notes.append("It waits for the device itself, so launch latency is in its time.")
        found.samples[condition] = [sample["ns"] / calls for sample in good]
        seen = [look["sm_clock_mhz"] for look in clocks if "sm_clock_mhz" in look]
        found.clock_mhz = float(np.median(seen)) if seen else found.clock_mhz


def sure(taken: list[dict[str, Any]]) -> bool:
    """Whether the mean of the samples is known to SURE; those that were taken at one place count as one."""
    starts = [number for number, sample in enumerate(taken) if not sample["stays"]]
    places = [float(part.mean()) for part in np.split(np.array([s["ns"] for s in taken]), starts[1:])]
    return float(np.std(places, ddof=1)) <= SURE * sqrt(len(places)) * float(np.mean(places))


def undisturbed(taken: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The samples that count, and how many do not, by why; all count where most would not."""
    good, dropped = [], Counter[str]()
    for sample in taken:
        why = _disturbance(sample)
        if why:
            dropped[why] += 1
        else:
            good.append(sample)
    return (good, dropped) if 2 * len(good) >= len(taken) else (taken, Counter())


def _disturbance(sample: dict[str, Any]) -> str | None:
    if any(int(sample.get("reasons") or 0) & bit for bit in DOUBTFUL):
        return "throttled"
    return "preempted" if sample.get("preempted") else None


__all__ = ["ProcessSampler", "Sampler", "SideError", "undisturbed"]
