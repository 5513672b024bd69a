"""Forward passes that are repeated though memory is free."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, Found, rule
from fathom.diagnosis.signals import Signals

FREE = 0.6  # of the device's memory in use: more, and recomputing may be what makes it fit


@rule("kernels-needless-recomputation")
def recomputation(signals: Signals) -> Found:
    """Products that the ledger counts as done again."""
    again = [row for row in signals["step.ledger"] if row.again > 0 and row.products > 0]
    used, whole = signals["device.used_bytes"], signals["device.memory_bytes"]
    if not again or used > FREE * whole:
        return
    shares = {row.detail: min(row.again / row.products, 1.0) for row in again}
    ms = sum(shares[row.detail] * row.ms for row in again)
    yield Candidate(
        kind="kernels-needless-recomputation",
        claims=[Claim(row.entry, row.detail, shares[row.detail] * row.ms) for row in again],
        evidence=[
            Evidence("products that the forward pass has done already", ms, "ms a step"),
            Evidence("of the device's memory is in use at most", 100 * used / whole, "%"),
        ],
        changes=tuple(f"family:{name}={1 - share:.6f}" for name, share in shares.items()),
        doubt=0.4,
        check="leave checkpointing out, and compare peak memory and the step",
    )
