"""Sharded parameters that are gathered too late or twice, and reductions that start too late."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import part_of, rows
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rule
from fathom.diagnosis.signals import Signals
from fathom.diagnosis.signals.collectives import AfterBackward, Gathers
from fathom.units import GB, MB

LEAST = 0.05  # of the step
SERIAL = 0.8  # exposed share of gathers that start when their layer needs them
BUCKET = 25 * MB  # of DistributedDataParallel: the last one has no backward pass to hide in
BACKWARD = 2 / 3  # of the compute of a training step
ROOM = 0.9  # of the memory


def exposed_claims(signals: Signals, ms: float, pattern: str = "") -> list[Claim]:
    """Return claims of `ms` of exposed communication whose kernels' names contain `pattern`."""
    every = rows(signals, Entry.COMMUNICATION, Entry.MOVING_BYTES)
    mine = [claim for claim in every if pattern in claim.detail.lower().replace("_", "")]
    return part_of(mine, ms)


@rule("communication-after-backward")
def after_backward(signals: Signals) -> Candidates:
    """Report reductions that start after the backward pass, which could hide all but the last bucket."""
    seen: AfterBackward | None = next(iter(signals["communication.after_backward"]), None)
    if seen is None or seen.exposed_ms < LEAST * signals["step.timeline_ms"]:
        return
    last = min(BUCKET / seen.bytes, 1.0) * seen.exposed_ms
    hidden = min(seen.exposed_ms - last, BACKWARD * seen.compute_ms)
    places = signals.get("device.multiprocessors").value
    taken = min(seen.blocks / places, 1.0) if places else 0.0  # from compute, while a bucket is reduced
    gain = (1 - taken) * hidden
    if gain <= 0:
        return
    yield Candidate(
        claims=exposed_claims(signals, hidden, "reduce"),
        evidence=[
            Evidence("reductions after the backward pass", seen.count, "per step"),
            Evidence("bytes of all", seen.bytes / MB, "MB per step"),
            Evidence("exposed time of all", seen.exposed_ms, "ms per step"),
            Evidence("compute that overlaps with no communication", seen.compute_ms, "ms per step"),
        ],
        gain_ms=gain,
        doubt=0.3,
        confidence=0.85,
    )


@rule("communication-gathers-late")
def gathers_late(signals: Signals) -> Candidates:
    """Report all-gathers while nothing computes; compute would hide them if they started earlier."""
    seen: Gathers | None = next(iter(signals["communication.gathers"]), None)
    account = signals["communication.account"]
    if seen is None or seen.exposed_ms < max(LEAST * signals["step.timeline_ms"], SERIAL * seen.total_ms):
        return
    free = account.compute_ms - account.overlapped_ms
    gain = min(seen.exposed_ms - seen.longest_ms, free)
    yield Candidate(
        claims=exposed_claims(signals, gain, "allgather"),
        evidence=[
            Evidence("all-gathers of parameters", seen.count, "per step"),
            Evidence("exposed share of their time", 100 * seen.exposed_ms / seen.total_ms, "%"),
            Evidence("compute that overlaps with no communication", free, "ms per step"),
        ],
        gain_ms=gain,
        doubt=0.4,
        confidence=0.8,
    )


@rule("communication-gathered-twice")
def gathered_twice(signals: Signals) -> Candidates:
    """Report parameters that the backward pass gathers again, if memory has room to keep them."""
    seen: Gathers | None = next(iter(signals["communication.gathers"]), None)
    if seen is None:
        return
    equal = abs(seen.again - seen.count / 2) < 1 and abs(2 * seen.again_bytes / seen.bytes - 1) < 0.1
    gain = min(seen.again_ms, seen.exposed_ms)  # earlier gathers delay later ones
    if not equal or gain < LEAST * signals["step.timeline_ms"]:
        return
    free = ROOM * signals["device.memory_bytes"] - signals["device.used_bytes"]
    if free < seen.again_bytes:
        return
    yield Candidate(
        claims=exposed_claims(signals, gain, "allgather"),
        evidence=[
            Evidence("all-gathers in the backward pass", seen.again, "per step"),
            Evidence("their time", seen.again_ms, "ms per step"),
            Evidence("exposed time of all all-gathers", seen.exposed_ms, "ms per step"),
            Evidence("bytes that they gather again", seen.again_bytes / GB, "GB per step"),
            Evidence("free memory of the device", free / GB, "GB"),
        ],
        gain_ms=gain,
        doubt=0.4,
        confidence=0.75,
    )
