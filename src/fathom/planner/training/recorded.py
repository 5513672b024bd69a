"""A recorded program as the workload of a plan: its own kernels, on another machine and on more GPUs.

Kernels keep the share of their ceiling that they reached. The recorded timeline is replayed with their new
times, so that a host that launches too slowly still does. Ranks share the batch, with any sharding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fathom.analysis.entries import IDLE, Entry
from fathom.analysis.results import Device, Examination, LedgerRow
from fathom.errors import BadInputError
from fathom.machine.model import Machine
from fathom.planner.hardware import Hardware, from_machine
from fathom.planner.quantity import MEASURED, Quantity, spread
from fathom.planner.training.checking import launch_shape
from fathom.planner.training.choosing import USABLE
from fathom.planner.training.cost import hidden, ring_seconds
from fathom.planner.training.layout import DDP, FSDP, ZERO1, Layouts
from fathom.planner.training.loading import Loader
from fathom.planner.training.rates import Constants, constants, rates_of, stack
from fathom.planner.training.stating import Stated
from fathom.units import GIB, MS_PER_S

# The step with changes of `fathom what-if`, over that without; None if it cannot be predicted.
Predict = Callable[[tuple[str, ...]], float | None]
STACK = "fsdp"  # its constants of communication apply to a program in PyTorch
CARRIED, SAME = 0.15, 0.03  # spread of a step carried to another chip, and of one on its own (assumed)
_NO_INPUT = "input=0"  # the change of `fathom what-if` without waits for batches
_STARVED = 0.02  # of the step: a program that waits for longer is limited by its loading
_OTHER_WORKERS = 0.4  # 12 workers take 1.6 times as long for a sample as 2 (16 cores; bar plan-loading)
_CONTEXT = 1.5 * GIB  # CUDA, NCCL and libraries, if the recording does not tell (assumed)
FP32, _CHUNK = (
    4.0,
    65536,
)  # bytes of a parameter, and parameters that a block of torch's fused optimizers takes
_BUCKETS = 25 * 2**20  # bytes of a collective of gradients, as in DistributedDataParallel


@dataclass(frozen=True)
class Recording:
    """A recording, the machine it was made on, and the replay that predicts its step."""

    name: str
    examination: Examination
    machine: Machine
    predict: Predict

    @cached_property
    def device(self) -> Device:
        """Return the first device; raises BadInputError if it is not a GPU with a ledger."""
        devices = self.examination.devices
        if not devices or not devices[0].ledger:
            raise BadInputError("The sounding has no ledger to plan with; record it with a timeline.")
        if devices[0].device == "cpu":
            raise BadInputError(
                "Work recorded on a processor does not carry to GPUs; record the program on a GPU."
            )
        return devices[0]

    @cached_property
    def here(self) -> Hardware:
        """Return the recorded machine."""
        here = from_machine(self.machine)
        return replace(here, name=here.chip)

    @property
    def step_ms(self) -> float:
        """Return the clean step."""
        step = self.examination.step
        return step.clean_ms or step.timeline_ms or sum(row.ms for row in self.device.ledger)

    def per_step(self, what: str) -> float | None:
        """Return the `samples` or `tokens` of a step, if the program told or a loader showed them."""
        rate = getattr(self.examination.step, f"{what}_per_s")
        return rate * self.step_ms / MS_PER_S if rate else None

    @cached_property
    def waits_ms(self) -> float:
        """Return by how much waits for batches lengthen the step; 0 if there are none."""
        recorded = sum(row.ms for row in self.device.ledger if row.entry == Entry.INPUT)
        if recorded <= 0:
            return 0.0
        share = self.predict((_NO_INPUT,))
        return recorded if share is None else max(0.0, self.step_ms * (1 - share))

    @property
    def starved(self) -> bool:
        """Return whether loading was slower than the step."""
        return self.waits_ms > _STARVED * self.step_ms

    @cached_property
    def parameters(self) -> float:
        """Return the bytes of the parameters, by the memory snapshot; at most, by the optimizer's blocks."""
        memory = self.examination.memory
        if memory and memory.step and memory.step.parameters_bytes:
            return float(memory.step.parameters_bytes)
        blocks = sum(
            (row.count or 1.0) * launch_shape(row.detail)[0]
            for row in self.device.ledger
            if "multi_tensor_apply" in row.detail and "Adam" in row.detail
        )
        if not blocks:
            raise BadInputError(
                "The sounding does not show how many parameters it trains; give --parameters, like 7e9."
            )
        return FP32 * blocks * _CHUNK


@dataclass(frozen=True)
class RecordedJob:
    """A job to plan for a recording; `batch` is samples of a step over all GPUs, None for as many per GPU."""

    recording: Recording
    system: Hardware
    gpus: int
    batch: int | None = None
    tokens: float | None = None
    memory: float | None = None
    sharding: int | None = None
    shard: int | None = None
    parameters: float | None = None
    stated: Stated = field(default_factory=Stated)

    @cached_property
    def loader(self) -> Loader | None:
        """Return the recorded loader with the stated changes; None if the program has none."""
        return self.stated.loader(_recorded_loader(self))

    @property
    def size(self) -> float:
        """Return the bytes of the parameters; `parameters` are taken as fp32."""
        return FP32 * self.parameters if self.parameters else self.recording.parameters

    @property
    def states(self) -> float:
        """Return the bytes of the optimizer's states; two of each parameter if they were not recorded."""
        step = self.recording.examination.memory and self.recording.examination.memory.step
        return float((step and step.optimizer_state_bytes) or 2 * self.size)

    @property
    def limit(self) -> float:
        """Return the usable bytes of a GPU."""
        return self.memory or USABLE * self.system["memory"].value

    @property
    def is_same_chip(self) -> bool:
        """Return whether the plan is for the chip of the recording."""
        return self.system.chip == self.recording.here.chip

    @property
    def samples(self) -> int:
        """Return the samples of a recorded step; 1 if they are unknown."""
        return max(1, round(self.recording.per_step("samples") or 1))

    @property
    def accumulation(self) -> int:
        """Return the recorded steps that a step of the job repeats; raises BadInputError unless whole."""
        if self.batch is None:
            return 1
        if self.recording.per_step("samples") is None:
            raise BadInputError(
                "The sounding does not say how many samples a step has; leave --batch out, or record "
                "`fathom.step(samples=…)`."
            )
        each = self.gpus * self.samples
        if self.batch % each:
            near = each * max(1, round(self.batch / each))
            raise BadInputError(
                f"A batch of {self.batch} does not divide into steps of {self.samples} samples on "
                f"{self.gpus} GPUs; the nearest that works is --batch {near}."
            )
        return self.batch // each


# Data loading


def _recorded_loader(job: RecordedJob) -> Loader | None:
    """Return the loader of the recording: the time of a sample, and its workers.

    A step that waited was as long as its loading; else loading took at most the step. Reads are part of
    the time of a sample, unless the storage is another one whose bandwidth is known.
    """
    recording, loading = job.recording, job.recording.examination.input
    if loading is None or not (recording.waits_ms or loading.fetch_ms):
        return None
    workers, step = len(loading.workers), recording.step_ms
    batch = (loading.fetch_ms or 0.0) + (loading.collate_ms or 0.0)
    each = recording.waits_ms if not workers else step if recording.starved else min(batch / workers, step)
    made = each * max(1, workers) / MS_PER_S / job.samples
    size = (loading.read_bytes or 0.0) / job.samples if _reads_elsewhere(job) else 0.0
    if size and loading.read_ms:
        made = max(0.0, made - loading.read_ms / MS_PER_S / job.samples)
    return Loader(
        Quantity(size, "B", MEASURED, "recorded") if size else Loader().sample_bytes,
        spread(made, _sample_spread(job, workers), "s", MEASURED, "recorded"),
        Quantity(float(workers), "", MEASURED, "recorded"),
    )


def _sample_spread(job: RecordedJob, workers: int) -> float:
    """Return the spread of the time of a sample, which depends on how many workers share caches and cores."""
    is_same = job.is_same_chip and job.stated.workers in (None, workers)
    return SAME if is_same else _OTHER_WORKERS


def _reads_elsewhere(job: RecordedJob) -> bool:
    """Return whether samples come from another storage than the recorded one, of a known bandwidth."""
    is_known = job.system["storage"].provenance == MEASURED
    return job.stated.storage is not None or (is_known and not job.is_same_chip)


# One step


def carried(job: RecordedJob) -> dict[str, float]:
    """Return the seconds of one recorded step on the job's system, by entry, without communication."""
    recording, changed = job.recording, factors(job)
    kept = [row for row in recording.device.ledger if not _is_communication(row)]
    work = [row for row in kept if not row.entry.startswith(IDLE) and row.ms > 0]
    clean = _clean_share(kept, sum(row.ms for row in work))
    times = dict.fromkeys(("matmuls", "other kernels", "copies"), 0.0)
    for row in work:
        name = "copies" if row.entry == Entry.COPY else "matmuls" if row.unit else "other kernels"
        times[name] += clean * row.ms * changed.get(row.detail, 1.0) / MS_PER_S
    busy = sum(times.values())
    total = _total_ms(job, _changes(job, changed), busy * MS_PER_S, clean * sum(row.ms for row in work))
    total /= MS_PER_S
    if (
        busy > total
    ):  # the replay is shorter than the profiled work: streams overlap, or profiling slowed them
        times = {name: seconds * total / busy for name, seconds in times.items()}
    times["host and gaps"] = max(0.0, total - busy)
    return times


def _total_ms(job: RecordedJob, changes: tuple[str, ...], busy: float, before: float) -> float:
    """Return the milliseconds of the step without waits for batches, if these are planned.

    If the changes cannot be replayed, idle time stays as it was beside `before` ms of device work.
    """
    recording = job.recording
    waits = recording.waits_ms if job.loader else 0.0
    if not changes:
        return recording.step_ms - waits
    share = recording.predict((*changes, _NO_INPUT) if waits else changes)
    if share is None:
        return busy + max(0.0, recording.step_ms - waits - before)
    return recording.step_ms * share


def _clean_share(rows: list[LedgerRow], work: float) -> float:
    """Return the share of profiled device work that a clean step takes: overhead in it is a negative row."""
    overhead = sum(row.ms for row in rows if not row.entry.startswith(IDLE) and row.ms < 0)
    return max(0.0, 1 + overhead / work) if work else 1.0


def _changes(job: RecordedJob, factors: dict[str, float]) -> tuple[str, ...]:
    """Return the changes to replay: kernels by family, and no communication."""
    changes = [f'family:"{name}"={factor:.6g}' for name, factor in factors.items() if factor != 1.0]
    if any(_is_communication(row) for row in job.recording.device.ledger):
        changes.append("communication=0")
    return tuple(changes)


def _is_communication(row: LedgerRow) -> bool:
    return row.entry.startswith(Entry.COMMUNICATION) or row.entry == Entry.MOVING_BYTES


def factors(job: RecordedJob) -> dict[str, float]:
    """Return by how much the time of each family of kernels changes."""
    here, there = job.recording.here, job.system
    return {
        row.detail: ratio_of(row.bound or "hbm", here, there)
        for row in job.recording.device.ledger
        if row.entry == Entry.COMPUTE
    }


def ratio_of(bound: str, here: Hardware, there: Hardware) -> float:
    """Return a time there over that here, by the ceiling that bounds it; by memory's if it is unknown."""
    key = bound if bound in here.figures and bound in there.figures else "hbm"
    return _peak(here, key, there) / _peak(there, key, here)


def _peak(system: Hardware, key: str, other: Hardware) -> float:
    """Return a figure; the datasheet's unless both systems measured it."""
    both = all(of.figures[key].provenance == MEASURED for of in (system, other))
    return system.figures[key].value if both else system.published(key)


def entries(job: RecordedJob, at: Layouts, values: Constants | None = None) -> dict[str, float]:
    """Return the seconds of the job's step by entry: recorded steps, and the exposed collectives."""
    times = {name: job.accumulation * seconds for name, seconds in carried(job).items()}
    times["data parallel"] = exposed(job, at, sum(times.values()), values or constants())
    if job.loader:
        times["data loading"] = input_wait(job, job.loader, at, sum(times.values()))
    return times


def input_wait(job: RecordedJob, loader: Loader, at: Layouts, rest: float) -> float:
    """Return the seconds that a step waits for its batches."""
    waited = loader.wait(job.system, samples_of(job), at, rest)
    return max(least_wait(job, loader), float(np.ravel(waited)[0]))


def least_wait(job: RecordedJob, loader: Loader) -> float:
    """Return the seconds that handing batches over takes when loading keeps up, as recorded."""
    recording = job.recording
    is_hand_over = loader.has_workers and not recording.starved
    return job.accumulation * recording.waits_ms / MS_PER_S if is_hand_over else 0.0


def samples_of(job: RecordedJob) -> float:
    """Return the samples that a rank loads for a step."""
    return float(job.samples * job.accumulation)


def exposed(job: RecordedJob, at: Layouts, compute: float, values: Constants) -> float:
    """Return the seconds of collectives that the step does not hide."""
    rates = rates_of(job.system, stack(STACK), values)
    size, sharding = job.size, int(at.sharding[0])
    shared, messages = min(int(at.shard[0]) or job.gpus, job.gpus), max(1.0, size / _BUCKETS)
    passes = {DDP: 2.0, ZERO1: 2.0, FSDP: 1.0 + 2.0 * job.accumulation}[sharding]
    moving = passes * ring_seconds(job.system, rates, size, np.array(float(shared)), 1, messages)
    if shared < job.gpus:  # copies of the parameters reduce their shards
        part, copies = size / shared, np.array(job.gpus / shared)
        moving = moving + 2.0 * ring_seconds(job.system, rates, part, copies, shared, messages)
    return float(hidden(compute, moving, rates.data_serial))


# Memory


def memory_parts(job: RecordedJob, at: Layouts) -> dict[str, float]:
    """Return the bytes of a GPU: the recorded peak, less what the sharding moves to other ranks."""
    memory, size = job.recording.examination.memory, job.size
    if memory is None or not (peak := memory.peak_reserved_bytes or memory.peak_allocated_bytes):
        raise BadInputError("The sounding has no peak of memory; record it again on the GPU.")
    sharding = int(at.sharding[0])
    states = job.states
    ranks = int(at.shard[0]) or job.gpus
    context = (memory.peak_device_bytes or 0) - peak
    kept = 1.0 if sharding != FSDP else 1 / ranks
    return {
        "parameters": size * kept,
        "gradients": size * kept,
        "optimizer": states * (1.0 if sharding == DDP else 1 / ranks),
        "activations and other": max(0.0, peak - 2 * size - states),
        "buckets": min(size, 2.0 * _BUCKETS) if sharding == FSDP else size * (job.gpus > 1),
        "context": float(context) if context > 0 else _CONTEXT,
    }
