"""Devices that wait for batches, and the stage of the input pipeline that is the bottleneck."""

from __future__ import annotations

import msgspec
import numpy as np

from fathom.diagnosis.rules.host.oversubscription import oversubscribed
from fathom.diagnosis.rules.input.loader import Loader, loader_of, lost_of, waiting
from fathom.diagnosis.rules.input.workers import needless_ms, remedy_of, with_workers
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import LoaderRegions, Signals
from fathom.units import MB

WORKERS = "input-too-few-workers"
LEAST = 0.01  # of the step: workers that may gain less are not recommended
MOSTLY = 0.5  # of the lost time: below it, receiving batches from workers may make the step longer
SOME = 0.1  # cores of other programs: fewer are not worth a line
LONG_MS = 10.0  # per batch: above it, the number of samples matters little
ALONE = (
    "Without worker processes (num_workers=0), the program makes each batch itself and does nothing else "
    "meanwhile. Workers make the next batches during the step, as long as there are free cores."
)
CHECK = "fathom what-if SOUNDING 'input=0'; fathom run --what-if input -- COMMAND"
NOT_FILES = "of which system calls and waits"  # a small rest, which may read no file at all
WAITS = "of which waiting for something other than a file: a network, a lock, a sleep"
SAYS = {
    "decode": "of which decoding",
    "read": "of which reading files",
    "collate": "time to collate",
    "pin": "time to pin",
}


@rule(
    WORKERS,
    "input-sample-by-sample",
    "input-slow-decode",
    "input-slow-transform",
    "input-collate",
    "input-storage-bound",
)
def starved(signals: Signals) -> Candidates:
    """Find the cause of waits for batches from the stages of making a batch; the waiting time is the loss.

    A loader's first batch has no previous step to overlap with. Workers are recommended only if they cannot
    cost more than they gain.
    """
    seen, lost = lost_of(signals)
    loader = loader_of(signals, lost)
    keeps_up = loader is not None and (not loader.behind or loader.held_by_pinning)
    # The program then waits for new iterators, not for batches.
    starts = signals.number("input.anew_ms", 0.0) > MOSTLY * lost
    if not lost or keeps_up or starts or oversubscribed(signals, loader) or needless_ms(signals, loader):
        return
    regions: LoaderRegions | None = signals.get("input.regions").value
    alone = regions is not None and regions.in_process
    advice = _advice(signals, loader, lost, alone)
    if advice is None:
        return
    first = regions.first if regions and seen is None else 0.0
    waits = signals.number("input.wait_ms", lost)
    yield Candidate(
        kind=advice.kind,
        claims=waiting(signals),
        evidence=_evidence(loader, waits, alone, first),
        changes=("input=0",) if seen is None else (),
        part=(1 - first) * advice.part,
        gain_ms=None if seen is None else seen * advice.part,
        doubt=advice.doubt,
        confidence=advice.sure,
        check=CHECK,
        remedy=advice.remedy,
        mechanism=ALONE if advice.kind == WORKERS and _works_alone(loader, alone) else "",
        source=(loader and loader.source) or (regions.source if regions else None),
    )


def _works_alone(loader: Loader | None, alone: bool) -> bool:
    """Return whether the program's own process makes the batches."""
    return not loader.workers if loader else alone


class Advice(msgspec.Struct, frozen=True):
    """The cause, its confidence, and the `part` of the lost time that fixing it saves."""

    kind: str
    sure: float
    part: float = 1.0
    doubt: float = 0.15
    remedy: str = ""


def _advice(signals: Signals, loader: Loader | None, lost: float, alone: bool) -> Advice | None:
    """Return the advice for this loader; None if no known remedy would help."""
    kind, sure = _kind(loader, alone)
    if kind != WORKERS:
        return Advice(kind, sure)
    step, batches = signals["step.ms"], signals.number("input.micro_steps", 1.0)
    if loader is None:
        cores = signals.get("host.cores").value
        fed = (step - lost) / batches
        loader = Loader({"fetch": lost / batches}, 0, fed, cores) if alone else None
    if loader is None:
        return Advice(kind, sure)
    if loader.mends and loader.quick_samples:
        return _instead(loader)
    mended = with_workers(loader, lost, step, batches)
    if mended is None or mended.low < max(LEAST * step, MOSTLY * lost):
        return _instead(loader)
    if not mended.keeps_up and (other := _instead(loader)) is not None:
        return other
    doubt = max((mended.ms - mended.low) / mended.ms, 0.15)
    return Advice(kind, sure, mended.ms / lost, doubt, remedy_of(loader, mended.workers))


def _instead(loader: Loader) -> Advice | None:
    """Return other advice if workers would cost as much as they gain, or take cores that the step needs."""
    if not loader.mends:
        return None
    if loader.samples is None and loader.made_ms < LONG_MS and not loader.own_code:
        return Advice("input-collate", 0.6, 0.7, 0.45) if loader.mostly("collate") else None
    if loader.mostly("collate"):
        return Advice("input-collate", 0.75, 0.7, 0.45)
    if loader.quick_samples:
        return Advice("input-sample-by-sample", 0.75, 0.75, 0.35)
    if loader.mostly("decode"):
        return Advice("input-slow-decode", 0.7, 0.7, 0.45)
    if loader.mostly("read"):
        return None if loader.waits_for_no_file else Advice("input-storage-bound", 0.6, 0.7, 0.45)
    return Advice("input-slow-transform", 0.7, 0.7, 0.45)


def _kind(loader: Loader | None, alone: bool) -> tuple[str, float]:
    """Return the kind of finding and its confidence; `alone` means that a trace shows no workers."""
    if loader is None:
        return WORKERS, 0.8 if alone else 0.5
    if not loader.workers:
        return WORKERS, 0.85
    if loader.mostly("collate"):
        return "input-collate", 0.85
    if loader.mostly("read"):
        return _kind_of_read(loader)
    if loader.needed <= loader.free_cores:
        return WORKERS, 0.85
    if loader.mostly("decode"):
        return "input-slow-decode", 0.85
    return "input-slow-transform", 0.85 if {"decode", "read"} & loader.stages.keys() else 0.5


def _kind_of_read(loader: Loader) -> tuple[str, float]:
    """Return the kind for slow reads; waits without bytes need no core, so more workers can wait at once."""
    if loader.waits_for_no_file:
        return WORKERS, 0.6
    return "input-storage-bound", 0.6 if loader.read_bytes is None else 0.85


def _evidence(loader: Loader | None, waits: float, alone: bool, first: float) -> list[Evidence]:
    evidence = [Evidence("wait for batches", waits, "ms per step")]
    if first:
        text = "part of it for a loader's first batch, which cannot overlap"
        evidence.append(Evidence(text, first * waits, "ms per step"))
    if loader is None:
        here = Evidence("num_workers (the program's own process loads data)", 0, "")
        return [*evidence, here] if alone else evidence
    who = f"each of {loader.workers} workers" if loader.workers else "the training process"
    says = SAYS | {"read": _reading(loader)}
    read = 0.0 if loader.waits_for_no_file else loader.read_bytes
    evidence += [
        Evidence(f"time for {who} to fetch a batch's samples", loader.stages["fetch"], "ms"),
        *(Evidence(says[name], loader.stages[name], "ms") for name in says if loader.stages.get(name)),
        *([Evidence("bytes read from files per batch", read / MB, "MB")] if read else []),
        *([Evidence("time between two ready batches", loader.every_ms, "ms")] if loader.workers else []),
        Evidence("workers needed to keep up", float(np.ceil(loader.needed)), ""),
    ]
    if loader.cores is not None:
        evidence.append(Evidence("cores available", loader.cores, ""))
        if loader.busy_cores is not None:
            evidence.append(Evidence("of which the training process uses", loader.busy_cores, ""))
        if loader.others_cores >= SOME:
            evidence.append(Evidence("of which other programs use", loader.others_cores, ""))
    return evidence


def _reading(loader: Loader) -> str:
    """Return what the stage `read` is: a remainder, which is reading files only if it is most of the time."""
    if loader.waits_for_no_file:
        return WAITS
    return SAYS["read"] if loader.mostly("read") else NOT_FILES
