"""One block: a fresh process of one side, its samples, and reasons to refuse it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Any, Protocol

import numpy as np

from fathom.gauges import DOUBTFUL, ConditionSensors
from fathom.referee.compare.decode import Saved
from fathom.referee.settings import Settings
from fathom.referee.sides import Sides
from fathom.referee.verdict import Refusal
from fathom.referee.worker import SideError, SideProcess
from fathom.units import NS_PER_MS, NS_PER_S

WARM, COLD = "warm", "cold"
LEAST, MOST = 8, 60  # samples of a block
SAMPLE_NS = 50e3  # least duration of a sample, if the inputs of so many calls fit into memory
MOST_CALLS, MOST_INPUTS = 64, 256 * 2**20
CHECK_NS, MOST_REPEATS, ATTEMPTS = 20e6, 2**20, 4  # of samples that the parent times as well
SLACK_NS, SLACK = 3e6, 0.35  # by which the parent's clock may exceed the side's
WARM_UPS = 3
STAY = 2  # of the first LEAST samples use the same GPU memory, which exposes caches keyed by address
LONG_NS = 50e6  # longer calls are a sample each
READ_NS = 20_000_000  # between two readings of the sensors
PRECISE = 1e-3  # relative standard error of the mean from which more samples of this process add nothing


@dataclass
class Block:
    """One block. `samples`: ns per call, by condition of the cache; `kept`: the result of a timed call."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    discarded: Counter[str] = field(default_factory=Counter)
    clock_mhz: float | None = None
    reasons: list[Refusal] = field(default_factory=list)
    held_seed: int | None = None  # seed of the call whose result the process keeps
    kept: tuple[int, Saved] | None = None  # that seed, and the result
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Seeds:
    """Seeds by purpose, so that both sides of a round get the same ones."""

    drawn: int

    def __call__(self, *purpose: object) -> int:
        return random.Random(f"{self.drawn} {purpose}").randrange(1, 2**31)


class Sampler(Protocol):
    """Anything that times one side."""

    def block(self, side: str, seeds: Seeds, chosen: float, known: Saved | None = None) -> Block:
        """Take a block. Both sides of a round get the same `seeds`. `chosen` (0 to 1) selects the sample
        whose result is kept; a result equal to `known`, the other side's, is not copied. Raises SideError.
        """
        ...


class ProcessSampler:
    """Times callables in fresh processes; the first block sets the number of calls per sample."""

    def __init__(self, sides: Sides, settings: Settings, device: str, input_bytes: int) -> None:
        self._sides, self._settings, self._device = sides, settings, device
        self._most_calls = max(1, min(MOST_CALLS, MOST_INPUTS // max(input_bytes, 1)))
        self._calls: int | None = None
        self._moves = False
        self._sensors = ConditionSensors() if device == "cuda" else None
        self._read, self._read_ns = dict[str, float](), -READ_NS

    @property
    def conditions(self) -> tuple[str, ...]:
        """Conditions of the cache: cold and warm on a GPU; a CPU has only one."""
        return (WARM, COLD) if self._device == "cuda" else ("",)

    def block(self, side: str, seeds: Seeds, chosen: float, known: Saved | None = None) -> Block:
        """Prepare beside other proofs; then, in exclusive use, compare the clocks and take samples.

        Raises SideError.
        """
        block, turn = Block(), self._sides.turn
        with self._sides.start(side) as worker:
            on_gpu = self._device == "cuda"  # where kernels are loaded when first launched
            for number in range(1, WARM_UPS):
                seed = seeds("warm-up", number)
                self._warm_up(worker, seed, latency="included", cold=on_gpu, check=on_gpu)
            worker.ask("hold", index=0, seed=seeds("warm-up", 1))  # a backward pass may need compiling
            with turn.exclusive():
                per_call = self._warm_up(worker, seeds("warm-up", 0), latency=self._settings.latency)
                self._calls = self._calls or self._enough(per_call)
                self._moves = self._device == "cuda" and per_call < LONG_NS
                block.reasons += self._clocks_agree(worker, per_call)
                for condition in self.conditions:
                    self._sample(worker, seeds, condition, chosen, block)
            if block.held_seed is not None:
                block.kept = block.held_seed, self._sides.held_result(worker, known)
            block.reasons += [Refusal(*pair) for pair in worker.ask("changed")]
        return block

    def _go(self, worker: SideProcess, **options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = worker.ask("go", latency=self._settings.latency, **options)
        return answer

    def _warm_up(self, worker: SideProcess, seed: int, **options: Any) -> float:
        """The time of one call in ns."""
        worker.ask("place", seeds=[seed])
        return float(worker.ask("go", **options)["ns"])

    def _move(self, worker: SideProcess, seeds: list[int]) -> int:
        """Move the inputs to other memory and make one call there, which allocates. Returns its time in
        ns.
        """
        worker.ask("place", seeds=seeds, elsewhere=True)
        moved = worker.waited_ns
        worker.ask("go", latency="included")
        return moved + worker.waited_ns

    def _enough(self, per_call_ns: float) -> int:
        """The number of calls per sample."""
        return max(1, min(self._most_calls, ceil(SAMPLE_NS / max(per_call_ns, 1))))

    def _clocks_agree(self, worker: SideProcess, per_call_ns: float) -> list[Refusal]:
        """Time samples that are long enough for the parent's clock. Other work may disturb them, so one of
        a few has to agree.
        """
        repeat = max(1, min(MOST_REPEATS, ceil(CHECK_NS / max(per_call_ns, 1))))
        attempts = 0
        while attempts < ATTEMPTS:
            answer: dict[str, Any] = worker.ask("go", latency="included", repeat=repeat)
            waited = worker.waited_ns
            claimed = answer.get("host_ns", answer["ns"]) + answer.get("copied_ns", 0)
            if waited < CHECK_NS and repeat < MOST_REPEATS:
                repeat *= 2
                continue
            attempts += 1
            if waited - claimed <= SLACK_NS + SLACK * claimed:
                return []
        claimed_ms, waited_ms = claimed / NS_PER_MS, waited / NS_PER_MS
        text = f"it claims {claimed_ms:.1f} ms for a sample of {waited_ms:.1f} ms by the referee's clock"
        return [Refusal("patched-timer", text)]

    def _sample(self, worker: SideProcess, seeds: Seeds, condition: str, chosen: float, block: Block) -> None:
        taken: list[dict[str, Any]] = []
        calls = (
            1 if condition == COLD else self._calls or 1
        )  # a second call would find the first one's data in the cache
        most = MOST if self._settings.decides(condition) else LEAST
        left_ns, clocks = NS_PER_S * self._settings.block_s, list[dict[str, float]]()
        while len(taken) < LEAST or (len(taken) < most and left_ns > 0 and not precise(taken)):
            number = len(taken)
            stays = number % STAY if number < LEAST else 0
            if self._moves and not stays:
                left_ns -= self._move(worker, [seeds(condition, number, n, "moved") for n in range(calls)])
            batch = [seeds(condition, number, call) for call in range(calls)]
            worker.ask("place", seeds=batch)
            prepared = worker.waited_ns
            with_check = number == 0 or number == int(chosen * LEAST)
            sample = self._go(worker, cold=condition == COLD, check=with_check)
            reading = self._readings()
            clocks.append(reading)
            taken.append(sample | {"stays": stays, "reasons": int(reading.get("reasons", 0))})
            if sample.get("late"):
                block.reasons.append(Refusal(sample["late"], "its result changed after its time was taken"))
            if number == int(chosen * LEAST) and condition != WARM:
                index = int(chosen * 1e6) % len(batch)
                block.held_seed = batch[index]
                worker.ask("hold", index=index, seed=block.held_seed)
            left_ns -= prepared + worker.waited_ns
        self._count(taken, condition, calls, clocks, block)

    def _readings(self) -> dict[str, float]:
        """Readings of the sensors, at most every READ_NS, because the driver may take longer than a
        sample.
        """
        now = self._sides.turn.now_ns()
        if self._sensors is not None and now - self._read_ns >= READ_NS:
            self._read, self._read_ns = self._sensors.read("sm_clock_mhz", "reasons"), now
        return self._read

    def _count(
        self,
        taken: list[dict[str, Any]],
        condition: str,
        calls: int,
        clocks: list[dict[str, float]],
        block: Block,
    ) -> None:
        good, dropped = undisturbed(taken)
        block.discarded += dropped
        ahead = self._device == "cuda" and self._settings.latency == "removed"
        if ahead and not all(sample["queued"] for sample in good):
            block.notes.append("It waits for the device itself, so its time includes launch latency.")
        block.samples[condition] = [sample["ns"] / calls for sample in good]
        seen = [reading["sm_clock_mhz"] for reading in clocks if "sm_clock_mhz" in reading]
        block.clock_mhz = float(np.median(seen)) if seen else block.clock_mhz


def precise(taken: list[dict[str, Any]]) -> bool:
    """Whether the standard error of the mean is below PRECISE; samples in the same memory count as one."""
    starts = [number for number, sample in enumerate(taken) if not sample["stays"]]
    places = [float(part.mean()) for part in np.split(np.array([s["ns"] for s in taken]), starts[1:])]
    return float(np.std(places, ddof=1)) <= PRECISE * sqrt(len(places)) * float(np.mean(places))


def undisturbed(taken: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The samples that count, and the number discarded by reason; all count if most would be discarded."""
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
