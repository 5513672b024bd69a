"""Forward passes that are recomputed although memory is free."""

from __future__ import annotations

import re

from fathom.analysis.entries import Entry
from fathom.analysis.work import ONLY_FORWARD
from fathom.diagnosis.rules.rule import LAUNCHING, Candidate, Candidates, Claim, Evidence, claims_of, rule
from fathom.diagnosis.signals import Signals, Work

FREE = 0.6  # of the device's memory in use: above it, recomputation may be what makes the program fit


@rule("kernels-needless-recomputation")
def recomputation(signals: Signals) -> Candidates:
    """Find products that the ledger counts as recomputed."""
    again = [row for row in signals["step.ledger"] if row.again > 0 and row.products > 0]
    used, total = signals["device.used_bytes"], signals["device.memory_bytes"]
    if not again or used > FREE * total:
        return
    shares = {row.detail: min(row.again / row.products, 1.0) for row in again}
    works = signals.get("kernels.work").value or []
    others = [work for work in works if work.family not in shares and _forward_in_backward(work)]
    ms = sum(shares[row.detail] * row.ms for row in again) + sum(work.ms for work in others)
    yield Candidate(
        kind="kernels-needless-recomputation",
        claims=[
            *(Claim(row.entry, row.detail, shares[row.detail] * row.ms) for row in again),
            *claims_of(others),
        ],
        evidence=[
            Evidence("time recomputing the forward pass", ms, "ms per step"),
            Evidence("peak use of the device's memory", 100 * used / total, "%"),
        ],
        changes=("recomputed=0",),
        spill=LAUNCHING,
        doubt=0.25,
        check="switch checkpointing off, and compare peak memory and the step",
    )


def _forward_in_backward(work: Work) -> bool:
    """Whether a backward function launched an op that only forward passes call."""
    return (
        work.entry == Entry.COMPUTE
        and work.path.startswith("autograd::")
        and re.search(ONLY_FORWARD, work.path) is not None
    )
