"""Another process that has turns on the device."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, Found, rows, rule
from fathom.diagnosis.signals import Signals, Stretched

LEAST = 0.05  # of the time that kernels take
FAMILIES = 2  # a turn meets whatever runs


@rule("device-other-process")
def others(signals: Signals) -> Found:
    """Kernels of one shape do the same work: what some take longer by a turn was not theirs."""
    found: Stretched = signals["device.stretched"]
    compute = list(rows(signals, Entry.COMPUTE))
    total = sum(claim.ms for claim in compute)
    if found.families < FAMILIES or found.ms < LEAST * total:
        return
    share = min(found.ms / total, 1.0)
    yield Candidate(
        kind="device-other-process",
        claims=[Claim(c.entry, c.detail, share * c.ms) for c in compute],
        evidence=[
            Evidence(
                "kernels take longer than their like, by 0.5 ms or more",
                found.count,
                "a step",
            ),
            Evidence("they take longer by", found.ms, "ms a step"),
            Evidence("kinds of kernels that it happens to", float(found.families), "families"),
        ],
        changes=(f"all-kernels={1 - share:.6f}",),
        doubt=0.3,
        confidence=0.7,
        check="nvidia-smi pmon -c 5",
    )
