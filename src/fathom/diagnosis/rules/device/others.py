"""Another process that shares the device by time slices."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rows, rule
from fathom.diagnosis.signals import Signals, Stretched

LEAST = 0.05  # of kernel time
FAMILIES = 2  # a time slice interrupts whichever kernel runs


@rule("device-other-process")
def others(signals: Signals) -> Candidates:
    """Kernels of one shape do the same work: those longer by a time slice were interrupted."""
    interrupted: Stretched = signals["device.stretched"]
    compute = list(rows(signals, Entry.COMPUTE))
    total = sum(claim.ms for claim in compute)
    if interrupted.families < FAMILIES or interrupted.ms < LEAST * total:
        return
    share = min(interrupted.ms / total, 1.0)
    yield Candidate(
        kind="device-other-process",
        claims=[Claim(c.entry, c.detail, share * c.ms) for c in compute],
        evidence=[
            Evidence(
                "kernels at least 0.5 ms longer than their family's typical one",
                interrupted.count,
                "per step",
            ),
            Evidence("extra time of these kernels", interrupted.ms, "ms per step"),
            Evidence("kernel families affected", float(interrupted.families), "families"),
        ],
        changes=(f"all-kernels={1 - share:.6f}",),
        doubt=0.3,
        confidence=0.7,
        check="nvidia-smi pmon -c 5",
    )
