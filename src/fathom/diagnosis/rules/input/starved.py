"""The device waits for batches: which stage of making them is the slow one."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rows, rule, spent
from fathom.diagnosis.signals import Signals, UnknownSignalError

ENTRY = "idle: input"
READY = 0.5  # of the step: a batch made quicker is there in time, and taking it is all that is waited for
MOST = 0.5  # of a batch's time: a stage that takes more is the one to mend
BUSY = 80.0  # percent of the host's cores: more, and there is no room for more workers
IDLE = 30.0  # percent: less, with all workers waiting, and storage is what they wait for
CHECK = "fathom what-if SOUNDING 'input=0'; repeat one cached batch in the loop and time the step"
STAGES = {"collate": "input-collate", "transform": "input-slow-transform"}


@rule(
    "input-too-few-workers",
    "input-slow-decode",
    "input-slow-transform",
    "input-collate",
    "input-storage-bound",
)
def starved(signals: Signals) -> Found:
    """Only what the device waited for is a loss; how batches are made says whose it is."""
    idle = spent(signals, ENTRY)
    if not idle:
        return
    evidence = [Evidence("the device has nothing to do until a batch comes", idle, "ms a step")]
    try:
        stages, workers = signals["input.stages_ms"], int(signals["input.workers"])
    except UnknownSignalError:
        stages, workers = {}, 0
    if stages and workers and stages["fetch"] / workers < READY * signals["step.ms"]:
        return
    if stages:
        evidence += _evidence(signals, stages, workers)
    yield Candidate(
        kind=_kind(signals, stages, workers),
        claims=list(rows(signals, ENTRY)),
        evidence=evidence,
        changes=("input=0",),
        doubt=0.2,
        confidence=0.85 if stages else 0.5,
        check=CHECK,
    )


def _kind(signals: Signals, stages: dict[str, float], workers: int) -> str:
    fetch = stages.get("fetch", 0.0)
    for stage, kind in STAGES.items():
        if fetch and stages.get(stage, 0.0) > MOST * fetch:
            return kind
    busy = signals.get("host.busy_percent").value
    cores = signals.get("host.cores").value
    full = workers and cores and workers >= 0.9 * cores
    if busy is not None and (busy >= BUSY or (full and busy >= MOST * 100)):
        return "input-slow-decode"
    if full and busy is not None and busy < IDLE:
        return "input-storage-bound"
    return "input-too-few-workers"


def _evidence(signals: Signals, stages: dict[str, float], workers: int) -> list[Evidence]:
    made = f"{workers} workers" if workers else "the program's own process"
    found = [
        Evidence(f"{made} take this for a batch", stages["fetch"], "ms"),
        Evidence("so a batch is ready every", stages["fetch"] / max(workers, 1), "ms"),
    ]
    waited = signals.get("input.wait_ms").value
    if waited is not None:
        found.append(
            Evidence("undisturbed steps waited, batches that were ready beforehand included", waited, "ms")
        )
    busy = signals.get("host.busy_percent").value
    if busy is not None:
        found.append(Evidence("of the host's cores are busy", busy, "%"))
    return found + [
        Evidence(f"of which {stage}", ms, "ms") for stage, ms in stages.items() if stage in STAGES and ms
    ]
