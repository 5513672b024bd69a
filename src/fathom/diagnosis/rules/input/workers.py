"""Worker processes: the gain and cost of using all free cores, or none, and restarts of workers."""

from __future__ import annotations

from math import ceil

import msgspec

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import contended, on_processor
from fathom.diagnosis.rules.host.oversubscription import oversubscribed
from fathom.diagnosis.rules.input.loader import HANDLING_MS, SPARE, Loader, loader_of, waiting
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals

# The training thread's cost to receive a batch from a worker: a queue, a segment of shared memory for each
# tensor, and mapping its pages. Measured on an EPYC with torch 2.13; a faster host needs half of it.
RECEIVE_MS, TENSOR_MS, BYTES_PER_MS = 0.1, 0.18, 5e6
TENSORS = 4  # per batch, if not recorded
SHARED_MS = 0.08  # to create a tensor's shared memory, at least: 0.12 on two cores of an EPYC
HOST = (1.0, 2.0)  # times this cost: typical, and at most
HIDDEN = (0.2, 2.0)  # the same beside a busy device, which overlaps most of it
MOST = 16  # workers: more are rarely useful
WORTH, LEAST = 0.03, 0.01  # of the step, for which workers are needless: expected, and at its lower end
MODELLED, GUESSED = 0.25, 0.5  # doubt in the model without workers, and in their cores
WAITING = 0.5  # of the time of samples: above it, workers need no core each


class Mended(msgspec.Struct, frozen=True):
    """Expected and minimum milliseconds that a step saves with `workers`, and whether they keep up."""

    workers: int
    ms: float
    low: float
    keeps_up: bool


def with_workers(loader: Loader, lost: float, step_ms: float, batches: float) -> Mended | None:
    """Return the effect of workers on a step of `batches` that now loses `lost` ms; None if no core is left.

    Without workers, the program makes each batch itself, and does nothing else meanwhile. With workers, a
    step takes either its time without input plus the cost of receiving a batch, or as long as the workers
    need.
    """
    waits = loader.waiting_ms >= WAITING * loader.made_ms
    cores = min(loader.free_cores, MOST)
    free = float(MOST) if waits else cores
    if free < 1:
        return None
    receive = receive_ms(loader)
    count = ceil((loader.made_ms + receive) / loader.fed_ms) if loader.fed_ms > 0 else MOST
    wanted, count = count, max(min(count, int(free)), 1)
    paid = 0.0 if loader.workers else receive  # a loader with workers already has this cost

    def saved(share: float) -> float:
        made = (loader.made_ms + share * receive) / count
        made = max(made, (loader.made_ms - loader.waiting_ms) / max(cores, 1.0))
        return min(step_ms - batches * max(loader.fed_ms + share * paid, made), lost)

    usual, most = HOST if loader.on_processor else HIDDEN
    return Mended(count, saved(usual), saved(most), count >= min(wanted, MOST))


def step_ms_with(loader: Loader, workers: int) -> float:
    """Return the expected milliseconds of a step per batch with this number of workers on this host.

    Workers share the cores with the step: together they need at least their CPU time over the cores.
    """
    cost, _ = HOST if loader.on_processor else HIDDEN
    receive = cost * receive_ms(loader)
    if loader.workers and loader.on_processor:
        bare = max(loader.fed_ms - taken_ms(loader), 0.0)  # the wait, which `fed_ms` lacks, contains the rest
    else:
        bare = max(loader.fed_ms - (receive if loader.workers else 0.0), 0.0)
    if not workers:
        return bare + made_alone_ms(loader)
    work = 0.0
    if loader.cores is not None:
        cores = max(loader.cores - loader.others_cores, 1.0)
        busy = min(SPARE if loader.busy_cores is None else loader.busy_cores, cores)
        work = (loader.made_ms - loader.waiting_ms + busy * bare) / cores
    return max(bare + receive, (loader.made_ms + receive) / workers, work)


def taken_ms(loader: Loader) -> float:
    """Return the milliseconds per batch by which workers that take a core lengthen the step.

    An op waits for its slowest thread. Any of its threads may lose its core, as often as the step's own does,
    but for no longer than a worker needs to make a batch and to send it, which takes at least as long as
    receiving it: 2.4 ms of a worker's threads for batches made in 1.4 ms and received in 0.6.
    """
    used = loader.made_ms - loader.waiting_ms + receive_ms(loader)
    return min(used, (loader.busy_cores or 1.0) * loader.ready_ms)


def made_alone_ms(loader: Loader) -> float:
    """Return the milliseconds that the program itself needs to make a batch.

    It waits for slow batches, too, so the mean counts. In a worker, torch's function collates into shared
    memory, which takes longer.
    """
    if not loader.workers:
        return loader.made_ms
    shared = SHARED_MS * (loader.tensors or 0) if loader.library_collates else 0.0
    shared = min(shared, loader.stages.get("collate", 0.0))
    return max(loader.mean_ms, loader.made_ms) - shared + HANDLING_MS


def receive_ms(loader: Loader) -> float:
    """Return the milliseconds that the training thread needs to receive a batch from a worker."""
    tensors = TENSORS if loader.tensors is None else loader.tensors
    rate = loader.transport or BYTES_PER_MS
    return RECEIVE_MS + TENSOR_MS * tensors + (loader.bytes or 0.0) / rate


SHARDED = """\
def __iter__(self):                       # in the data set: each worker takes its share of the samples
    worker = torch.utils.data.get_worker_info()
    part, parts = (0, 1) if worker is None else (worker.id, worker.num_workers)
    yield from itertools.islice(self.samples(), part, None, parts)
"""
LOADER = "DataLoader(data, batch, num_workers={workers}, persistent_workers=True, prefetch_factor=4)\n"
SPAWNED = (
    "# workers start by spawn and import the program again: persistent_workers keeps them for all epochs\n"
)
MEASURE = "# measure it: fathom run --what-if input -- COMMAND shows the most that any loader gains\n"


def remedy_of(loader: Loader, workers: int) -> str:
    """Return the remedy for this loader; an iterable dataset has to divide its samples among the workers."""
    lines = (SHARDED if loader.iterable else "") + LOADER.format(workers=max(workers, loader.workers + 1))
    return lines + (SPAWNED if loader.spawned else "") + MEASURE


def needless_ms(signals: Signals, loader: Loader | None) -> float:
    """Return the milliseconds that a step on a processor gains without workers; 0 if it gains too little."""
    waits = signals.get("input.lost_ms").value
    if loader is None or not loader.workers or not waits or not on_processor(signals) or contended(signals):
        return 0.0
    if oversubscribed(signals, loader):
        return 0.0
    anew = sum(signals.get("input.restarts_ms").value or []) / signals.number("input.steps", 1.0)
    gain = (
        waits - anew + signals.number("input.micro_steps", 1.0) * (taken_ms(loader) - made_alone_ms(loader))
    )
    return gain if gain >= WORTH * signals.number("step.mean_ms", 0.0) else 0.0


@rule("input-needless-workers")
def needless(signals: Signals) -> Candidates:
    """Find workers on a processor whose batches cost the step more than making them there would."""
    loader = loader_of(signals, signals["input.lost_ms"])
    gain = needless_ms(signals, loader)
    if loader is None or not gain:
        return
    batches = signals.number("input.micro_steps", 1.0)
    made, taken = batches * made_alone_ms(loader), batches * taken_ms(loader)
    yield Candidate(
        claims=waiting(signals),
        evidence=[
            Evidence("wait for batches", signals["input.lost_ms"], "ms per step"),
            Evidence("time to make them without workers", made, "ms per step"),
            Evidence("time that workers take from the step's cores", taken, "ms per step"),
        ],
        gain_ms=gain,
        spill=(Entry.OPS, Entry.PYTHON),
        doubt=min(MODELLED + GUESSED * taken / gain, 1.0),
        confidence=0.8,
        check="set num_workers=0, and time the step",
        least=LEAST,
    )


@rule("input-worker-restart")
def restarts(signals: Signals) -> Candidates:
    """Find steps in which a loader restarts; even persistent workers have to make the first batch."""
    took, workers = signals["input.restarts_ms"], signals["input.workers"]
    if not took or not workers:
        return
    stages = signals.get("input.stages_ms").value or {}
    first = stages.get("fetch", 0.0) + stages.get("collate", 0.0)
    saved = sum(max(ms - first, 0.0) for ms in took) / signals["input.steps"]
    lasting = sum(took) / signals["input.steps"]
    yield Candidate(
        claims=[],
        evidence=[
            Evidence(f"time to restart the loader's {workers} workers", sum(took) / len(took), "ms"),
            Evidence("the same, averaged over all steps", lasting, "ms per step"),
            Evidence("time for the first batch with persistent workers", first, "ms"),
        ],
        gain_ms=(saved + lasting) / 2,
        doubt=max((lasting - saved) / (lasting + saved), 0.15) if lasting else 0.15,
        check="set persistent_workers=True, and time an epoch",
    )
