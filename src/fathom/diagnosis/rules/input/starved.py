"""The device waits for batches: which stage of making them is the slow one."""

from __future__ import annotations

import numpy as np

from fathom.diagnosis.rules.host.oversubscription import crowded
from fathom.diagnosis.rules.input.loader import Loader, loader_of
from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rows, rule, spent
from fathom.diagnosis.signals import LoaderRegions, Signals

ENTRY = "idle: input"
SPARE = 2  # cores for the training thread and the one that pins
CHECK = "fathom what-if SOUNDING 'input=0'; fathom run --what-if input -- COMMAND"
WAITS = "of which waiting for what is no file: a network, a lock, a sleep"
SAYS = {
    "decode": "of which decoding",
    "read": "of which reading, and waiting for what is read",
    "collate": "putting them together takes",
    "pin": "the thread that pins takes",
}


@rule(
    "input-too-few-workers",
    "input-slow-decode",
    "input-slow-transform",
    "input-collate",
    "input-storage-bound",
)
def starved(signals: Signals) -> Found:
    """Only what the device waited for is a loss; how batches are made says whose it is.

    The first batch of a loader has no step before it that could hide it, whoever makes it.
    """
    seen = signals.get("input.lost_ms").value
    lost = spent(signals, ENTRY) if seen is None else seen
    loader = loader_of(signals, lost)
    if not lost or (loader and (not loader.behind or loader.held_by_pinning)) or crowded(signals, loader):
        return
    regions: LoaderRegions | None = signals.get("input.regions").value
    alone = regions is not None and regions.in_process
    first = regions.first if regions and seen is None else 0.0
    kind, sure = _kind(loader, alone)
    yield Candidate(
        kind=kind,
        claims=list(rows(signals, ENTRY)),
        evidence=_evidence(loader, lost, alone, first),
        changes=("input=0",) if seen is None else (),
        part=1 - first,
        gain_ms=seen,
        doubt=0.15,
        confidence=sure,
        check=CHECK,
        source=regions.source if regions else None,
    )


def _kind(loader: Loader | None, alone: bool) -> tuple[str, float]:
    """What is at fault, and how sure that is; `alone`: a trace says that there are no workers."""
    if loader is None:
        return "input-too-few-workers", 0.8 if alone else 0.5
    if not loader.workers:
        return "input-too-few-workers", 0.85
    if loader.mostly("collate"):
        return "input-collate", 0.85
    if loader.mostly("read"):
        return _kind_of_read(loader)
    if loader.cores is None or loader.needed + SPARE <= loader.cores:
        return "input-too-few-workers", 0.85
    if loader.mostly("decode"):
        return "input-slow-decode", 0.85
    return "input-slow-transform", 0.85 if {"decode", "read"} & loader.stages.keys() else 0.5


def _kind_of_read(loader: Loader) -> tuple[str, float]:
    """Waits that bring in no bytes take no core: more workers wait side by side."""
    if loader.waits_for_no_file:
        return "input-too-few-workers", 0.6
    return "input-storage-bound", 0.6 if loader.read_bytes is None else 0.85


def _evidence(loader: Loader | None, lost: float, alone: bool, first: float) -> list[Evidence]:
    found = [Evidence("the step waits for its batches", lost, "ms a step")]
    if first:
        text = "of which for a loader's first, which nothing hides"
        found.append(Evidence(text, first * lost, "ms a step"))
    if loader is None:
        return [*found, Evidence("the program's own process loads: num_workers", 0, "")] if alone else found
    made = f"{loader.workers} workers take" if loader.workers else "the program's own process takes"
    says = SAYS | ({"read": WAITS} if loader.waits_for_no_file else {})
    found += [
        Evidence(f"{made} this for the samples of a batch", loader.stages["fetch"], "ms"),
        *(Evidence(says[name], loader.stages[name], "ms") for name in says if loader.stages.get(name)),
        *_given(loader),
        Evidence("so a batch is ready every", loader.every_ms, "ms"),
        Evidence("workers of this pace that would keep up", float(np.ceil(loader.needed)), ""),
    ]
    if loader.cores is not None:
        found.append(Evidence("cores may be used", loader.cores, "cores"))
    return found


def _given(loader: Loader) -> list[Evidence]:
    if not loader.read_bytes or loader.waits_for_no_file:
        return []
    return [Evidence("files give for it", loader.read_bytes / 1e6, "MB")]
