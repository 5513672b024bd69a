"""Reserved memory that cannot serve allocations."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Reserved, Signals
from fathom.units import GB

MUCH = 0.5  # of the peak of allocated memory
GROWS = 2.0  # ratio to the value at a third of the recording: a filled cache stops growing


@rule("host-fragmentation")
def fragmentation(signals: Signals) -> Candidates:
    """Memory reserved beyond the peak of allocation is fragmented, or the allocator would have used it."""
    reserved: Reserved = signals["device.reserved"]
    grows = reserved.unused >= GROWS * max(reserved.unused_before, 1.0)
    if not grows or reserved.unused < MUCH * reserved.allocated:
        return
    yield Candidate(
        kind="host-fragmentation",
        claims=[],
        evidence=[
            Evidence("memory reserved beyond the peak of allocated memory", reserved.unused / GB, "GB"),
            Evidence("the same, at a third of the recording", reserved.unused_before / GB, "GB"),
        ],
        costless=True,
        check="torch.cuda.memory_stats(): reserved_bytes against allocated_bytes, at their peaks",
    )
