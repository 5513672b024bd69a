"""One block: a fresh process of one side, its samples, and reasons to refuse it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Any, Protocol

import msgspec
import numpy as np

from fathom.gauges import DOUBTFUL, ConditionSensors
from fathom.referee.compare.decode import Saved
from fathom.referee.pair import Settings
from fathom.referee.sides import SideProcess, Sides
from fathom.referee.verdict import Refusal
from fathom.units import NS_PER_MS, NS_PER_S

WARM, COLD = "warm", "cold"
LEAST, MOST = 8, 60  # samples of a block
SAMPLE_NS = 50e3  # least duration of a sample, if inputs for that many calls fit into memory
MOST_CALLS, MOST_INPUTS = 64, 256 * 2**20
CHECK_NS, MOST_REPEATS, ATTEMPTS = 20e6, 2**20, 4  # for samples that the parent times too
SLACK_NS, SLACK = 3e6, 0.35  # by which the parent's clock may exceed the side's
WARM_UPS = 3
STAY = 2  # consecutive samples in the same GPU memory, among the first LEAST; exposes caches keyed by address
LONG_NS = 50e6  # longer calls are a sample each
READ_NS = 20_000_000  # between two readings of the sensors
PRECISE = 1e-3  # relative standard error of the mean at which more samples of this process add nothing


class Sample(msgspec.Struct):
    """One sample of the side: `ns` over all its calls, `host_ns` by the host's clock on a GPU.

    `queued`: the host kept ahead of the device. `late`: the code of a refusal, if the result changed later.
    `stays`: how many preceding samples used the same memory. `reasons` (throttling) and `clock_mhz` come
    from sensors.
    """

    ns: float
    host_ns: float | None = None
    copied_ns: float = 0.0
    queued: bool = False
    preempted: int = 0
    late: str | None = None
    stays: int = 0
    reasons: int = 0
    clock_mhz: float | None = None


def sampled(worker: SideProcess, **options: Any) -> Sample:
    """Take one sample. Raises SideError."""
    return msgspec.convert(worker.ask("go", **options), Sample)


@dataclass
class Block:
    """One block. `samples`: ns per call, by state of the cache; `kept`: the result of a timed call."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    discarded: Counter[str] = field(default_factory=Counter)
    clock_mhz: float | None = None
    reasons: list[Refusal] = field(default_factory=list)
    held_seed: int | None = None  # seed of the call whose result the process keeps
    kept: tuple[int, Saved] | None = None  # (held_seed, result)
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
        whose result is kept. A result equal to the other side's, `known`, is not copied. Raises SideError.
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
        """States of the cache that are timed: cold and warm on a GPU, only "" on a CPU."""
        return (WARM, COLD) if self._device == "cuda" else ("",)

    def block(self, side: str, seeds: Seeds, chosen: float, known: Saved | None = None) -> Block:
        """Warm up beside other proofs; then compare clocks and sample in exclusive use. Raises SideError."""
        block, turn = Block(), self._sides.turn
        with self._sides.start(side) as worker:
            on_gpu = self._device == "cuda"  # kernels are loaded at their first launch
            for number in range(1, WARM_UPS):
                seed = seeds("warm-up", number)
                self._warm_up(worker, seed, latency="included", cold=on_gpu, check=on_gpu)
            worker.ask("hold", index=0, seed=seeds("warm-up", 1))  # a backward pass may need compiling
            with turn.exclusive():
                per_call = self._warm_up(worker, seeds("warm-up", 0), latency=self._settings.latency)
                enough = max(1, min(self._most_calls, ceil(SAMPLE_NS / max(per_call, 1))))
                self._calls = self._calls or enough
                self._moves = self._device == "cuda" and per_call < LONG_NS
                block.reasons += self._clocks_agree(worker, per_call)
                for condition in self.conditions:
                    self._sample(worker, seeds, condition, chosen, block)
            if block.held_seed is not None:
                block.kept = block.held_seed, self._sides.held_result(worker, known)
            block.reasons += [Refusal(*pair) for pair in worker.ask("changed")]
        return block

    def _warm_up(self, worker: SideProcess, seed: int, **options: Any) -> float:
        """Make one call and return its time in ns."""
        worker.ask("place", seeds=[seed])
        return sampled(worker, **options).ns

    def _move(self, worker: SideProcess, seeds: list[int]) -> int:
        """Move the inputs to other memory, and make one call there so that its allocations move too. Returns
        the time that both took, in ns.
        """
        worker.ask("place", seeds=seeds, elsewhere=True)
        moved = worker.waited_ns
        worker.ask("go", latency="included")
        return moved + worker.waited_ns

    def _clocks_agree(self, worker: SideProcess, per_call_ns: float) -> list[Refusal]:
        """Return a refusal if the side's clock disagrees with the parent's. Takes long samples; because other
        work may disturb them, one of ATTEMPTS has to agree.
        """
        repeat = max(1, min(MOST_REPEATS, ceil(CHECK_NS / max(per_call_ns, 1))))
        attempts = 0
        while attempts < ATTEMPTS:
            sample = sampled(worker, latency="included", repeat=repeat)
            waited = worker.waited_ns
            claimed = (sample.ns if sample.host_ns is None else sample.host_ns) + sample.copied_ns
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
        taken: list[Sample] = []
        # In a cold cache, a second call would find the data of the first one there.
        calls = 1 if condition == COLD else self._calls or 1
        most = MOST if self._settings.decides(condition) else LEAST
        left_ns = NS_PER_S * self._settings.block_s
        while len(taken) < LEAST or (len(taken) < most and left_ns > 0 and not precise(taken)):
            number, kept = len(taken), len(taken) == int(chosen * LEAST)
            stays = number % STAY if number < LEAST else 0
            if self._moves and not stays:
                left_ns -= self._move(worker, [seeds(condition, number, n, "moved") for n in range(calls)])
            batch = [seeds(condition, number, call) for call in range(calls)]
            worker.ask("place", seeds=batch)
            prepared, options = worker.waited_ns, {"cold": condition == COLD, "check": number == 0 or kept}
            sample = sampled(worker, latency=self._settings.latency, **options)
            self._read_sensors(sample)
            sample.stays = stays
            taken.append(sample)
            if sample.late:
                block.reasons.append(Refusal(sample.late, "its result changed after its time was taken"))
            if kept and condition != WARM:
                index = int(chosen * 1e6) % len(batch)
                block.held_seed = batch[index]
                worker.ask("hold", index=index, seed=block.held_seed)
            left_ns -= prepared + worker.waited_ns
        self._count(taken, condition, calls, block)

    def _read_sensors(self, sample: Sample) -> None:
        """Set the sensor readings of a sample. Reads at most every READ_NS, because reading may take long."""
        now = self._sides.turn.now_ns()
        if self._sensors is not None and now - self._read_ns >= READ_NS:
            self._read, self._read_ns = self._sensors.read("sm_clock_mhz", "reasons"), now
        sample.clock_mhz, sample.reasons = self._read.get("sm_clock_mhz"), int(self._read.get("reasons", 0))

    def _count(self, taken: list[Sample], condition: str, calls: int, block: Block) -> None:
        good, dropped = undisturbed(taken)
        block.discarded += dropped
        ahead = self._device == "cuda" and self._settings.latency == "removed"
        if ahead and not all(sample.queued for sample in good):
            block.notes.append("It waits for the device itself, so its time includes launch latency.")
        block.samples[condition] = [sample.ns / calls for sample in good]
        clocks = [sample.clock_mhz for sample in taken if sample.clock_mhz is not None]
        block.clock_mhz = float(np.median(clocks)) if clocks else block.clock_mhz


def precise(taken: list[Sample]) -> bool:
    """Return whether the mean's standard error is below PRECISE. Samples in the same memory count as one."""
    starts = [number for number, sample in enumerate(taken) if not sample.stays]
    places = [float(part.mean()) for part in np.split(np.array([s.ns for s in taken]), starts[1:])]
    return float(np.std(places, ddof=1)) <= PRECISE * sqrt(len(places)) * float(np.mean(places))


def undisturbed(taken: list[Sample]) -> tuple[list[Sample], Counter[str]]:
    """Return the samples that count, and counts of the others by reason. If most are disturbed, all count."""
    reasons = [_disturbance(sample) for sample in taken]
    good = [sample for sample, reason in zip(taken, reasons, strict=True) if reason is None]
    dropped = Counter(reason for reason in reasons if reason is not None)
    return (good, dropped) if 2 * len(good) >= len(taken) else (taken, Counter())


def _disturbance(sample: Sample) -> str | None:
    if any(sample.reasons & bit for bit in DOUBTFUL):
        return "throttled"
    return "preempted" if sample.preempted else None
