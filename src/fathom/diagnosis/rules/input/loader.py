"""The loader's pace: how it makes batches, and whether it keeps up with the step."""

from __future__ import annotations

import msgspec

from fathom.analysis import makes_batches
from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import ms_of, on_processor, rows
from fathom.diagnosis.rules.rule import Claim
from fathom.diagnosis.signals import FetchingCode, Signals, UnknownSignalError, Usage
from fathom.sounding import LoaderFacts as About

READY = 0.9  # of the step without waits: faster batches keep the queue full
SLOWEST = 1e5  # B/s while reading: a disk that seeks for every page delivers more
MOST = 0.5  # of a batch's time: a longer stage is the bottleneck
SPARE = 2  # cores for the training thread and the pinning thread
BRIEF_MS = 0.008  # a few operations on tensors: the program's code only picks a sample
QUICK_MS = 0.03  # a faster sample is in memory: the cost is the call for each sample
HANDLING_MS = 0.25  # per batch: overhead of a loader without workers
SHORT_MS = 5.0  # a shorter wait may be for a core on a busy host


class Loader(msgspec.Struct, frozen=True):
    """How batches are made: milliseconds per batch, and the number of worker processes (0 for none)."""

    stages: dict[str, float]
    workers: int
    fed_ms: float  # time of a step per batch, without waits
    cores: int | None
    read_bytes: float | None = None
    threads: int | None = None  # torch's compute threads in each worker
    samples: float | None = None  # per batch
    busy_cores: float | None = None  # used by the program's own process in a step
    others_cores: float = 0.0  # used by other programs
    mean_ms: float = 0.0  # mean time of a batch; the stages are medians
    ready_ms: float = 0.0  # time per batch that the step's thread was ready without a core, if counted
    tensors: int | None = None  # per batch
    bytes: int | None = None
    transport: float | None = None  # measured bytes per millisecond from workers to the program
    on_processor: bool = False  # the program computes on a CPU
    iterable: bool = False
    spawned: bool = False  # its workers start as new Python processes
    library_collates: bool = False  # the collate function is torch's
    indexed: bool = False  # the program's dataset takes all indices of a batch at once
    own_code: bool = False  # by sampled stacks, the program's own code takes the time, not the loader's
    source: str | None = None  # line of the program with most of a batch's time

    @property
    def made_ms(self) -> float:
        return self.stages["fetch"] + self.stages.get("collate", 0.0)

    @property
    def every_ms(self) -> float:
        """Time between two ready batches; the pinning thread takes one batch at a time."""
        return max(self.made_ms / max(self.workers, 1), self.stages.get("pin", 0.0))

    @property
    def behind(self) -> bool:
        return not self.workers or self.every_ms >= READY * self.fed_ms

    @property
    def held_by_pinning(self) -> bool:
        """Whether the single pinning thread is slower than the workers."""
        return self.workers > 0 and self.stages.get("pin", 0.0) > self.made_ms / self.workers

    @property
    def needed(self) -> float:
        """The number of workers that would keep up with the step."""
        return self.made_ms / self.fed_ms if self.fed_ms > 0 else float("inf")

    @property
    def waits_for_no_file(self) -> bool:
        """Whether the reading time yields no bytes from files, as for a socket, a lock or a sleep."""
        return self.read_bytes is not None and self.read_bytes < SLOWEST * self.stages.get("read", 0.0) / 1e3

    @property
    def waiting_ms(self) -> float:
        """The part of a batch's time that needs no core, in waits for something other than a file."""
        read = self.stages.get("read", 0.0)
        return read if self.waits_for_no_file and read >= SHORT_MS else 0.0

    @property
    def free_cores(self) -> float:
        """Cores free for workers; infinite if unknown."""
        if self.cores is None:
            return float("inf")
        return self.cores - self.others_cores - (SPARE if self.busy_cores is None else self.busy_cores)

    @property
    def quick_samples(self) -> bool:
        """Whether samples are so fast that the call for each sample dominates."""
        if not self.samples or self.iterable or self.mostly("decode") or self.mostly("read"):
            return False
        return self.stages["fetch"] / self.samples < (BRIEF_MS if self.own_code else QUICK_MS)

    @property
    def mends(self) -> bool:
        """Whether a change to the program's own code could make batches much faster."""
        library = self.library_collates and self.mostly("collate") and not self.own_code
        mended = self.indexed and self.quick_samples and not self.mostly("collate")
        return self.made_ms >= 2 * HANDLING_MS and not library and not mended

    @property
    def threads_exceed_cores(self) -> bool:
        """Whether workers have more compute threads than there are cores, in work that can use them.

        Library decoders, reading and pinning each use a single thread.
        """
        threads = self.workers * (self.threads or 1)
        if self.threads in (None, 1) or self.cores is None or threads <= self.cores:
            return False
        reads = self.mostly("read") and not self.waits_for_no_file
        pins = self.held_by_pinning and self.behind
        return not (reads or pins or self.mostly("decode"))

    def mostly(self, stage: str) -> bool:
        """Return whether this stage takes most of a batch's time."""
        return self.stages.get(stage, 0.0) > MOST * self.made_ms


def in_loop(signals: Signals) -> list[Claim]:
    """Claims of the ledger's rows of iterators that make batches in the loop's own thread."""
    return [claim for claim in rows(signals, Entry.INPUT) if makes_batches((Entry.INPUT.cause, claim.detail))]


def waiting(signals: Signals) -> list[Claim]:
    """Claims of the other rows of waiting for batches."""
    made = in_loop(signals)
    return [claim for claim in rows(signals, Entry.INPUT) if claim not in made]


def lost_of(signals: Signals) -> tuple[float | None, float]:
    """Return the measured wait for batches (None if unknown), and the time to claim: it or idle time."""
    seen = signals.get("input.lost_ms").value
    return seen, ms_of(waiting(signals)) if seen is None else seen


def loader_of(signals: Signals, lost: float) -> Loader | None:
    """Return the loader of a recording; None if its stages were not recorded."""
    try:
        stages, workers = signals["input.stages_ms"], int(signals["input.workers"])
    except UnknownSignalError:
        return None
    cores, read = signals.get("host.cores").value, signals.get("input.read_bytes").value
    batches = signals.number("input.micro_steps", 1.0)
    fed = (signals["step.ms"] - lost) / batches
    usage: Usage | None = signals.get("host.usage").value
    about: About | None = signals.get("input.about").value
    on_cpu = on_processor(signals)
    computing = (about.threads if about and about.threads else cores) if on_cpu else None
    own_code, source = _code(signals, stages, workers, about)
    return Loader(
        stages,
        workers,
        fed,
        cores,
        read,
        signals.get("input.threads").value,
        samples=signals.get("input.samples").value,
        busy_cores=None if computing is None else float(computing),
        others_cores=signals.number("host.others_cores", 0.0),
        mean_ms=signals.number("input.made_ms", 0.0),
        ready_ms=(usage.ready or 0.0) * signals["step.ms"] / batches if usage else 0.0,
        tensors=about.tensors if about else None,
        bytes=about.bytes if about else None,
        transport=signals.get("input.transport").value,
        on_processor=on_cpu,
        iterable=bool(about and about.iterable),
        spawned=bool(about and about.context in ("spawn", "forkserver")),
        indexed=bool(about and about.items and not about.dataset.startswith("torch.")),
        library_collates=bool(about and about.collate_source is None),
        own_code=own_code,
        source=source,
    )


def _code(
    signals: Signals, stages: dict[str, float], workers: int, about: About | None
) -> tuple[bool, str | None]:
    """Return whether the program's own code makes the batches, and its line, from stacks or the dataset."""
    sampled: FetchingCode | None = signals.get("input.code").value if not workers else None
    if sampled and sampled.share is not None and sampled.share >= MOST:
        return True, sampled.source
    collates = stages.get("collate", 0.0) > stages["fetch"]
    begins = (about.collate_source if collates else about.source) if about else None
    if sampled and sampled.share is None and sampled.source:
        begins = sampled.source
    return False, begins if workers or sampled is None or sampled.share is None else None
