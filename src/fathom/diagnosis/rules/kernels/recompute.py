"""Forward passes that are repeated though memory is free."""

from __future__ import annotations

import re

from fathom.analysis.entries import Entry
from fathom.analysis.work import ONLY_FORWARD
from fathom.diagnosis.rules.rule import LAUNCHING, Candidate, Candidates, Claim, Evidence, claims_of, rule
from fathom.diagnosis.signals import Signals, Work

FREE = 0.6  # of the device's memory in use: more, and recomputing may be what makes it fit


@rule("kernels-needless-recomputation")
def recomputation(signals: Signals) -> Candidates:
    """Products that the ledger counts as done again."""
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
            Evidence("work that the forward pass has already done", ms, "ms a step"),
            Evidence("of the device's memory is in use at most", 100 * used / total, "%"),
        ],
        changes=("recomputed=0",),
        spill=LAUNCHING,
        doubt=0.25,
        check="leave checkpointing out, and compare peak memory and the step",
    )


def _forward_in_backward(work: Work) -> bool:
    """Whether an op that no backward function calls was launched beneath one."""
    return (
        work.entry == Entry.COMPUTE
        and work.path.startswith("autograd::")
        and re.search(ONLY_FORWARD, work.path) is not None
    )
