"""Memory that is reserved, and of no use to what is asked for."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rule
from fathom.diagnosis.signals import Reserved, Signals
from fathom.units import GB

MUCH = 0.5  # of what was allocated at most
GROWS = 2.0  # times as much as at a third of the recording: a cache that has filled stays as it is


@rule("host-fragmentation")
def fragmentation(signals: Signals) -> Found:
    """What goes beyond the peak of allocation could serve nothing, or it would have."""
    held: Reserved = signals["device.reserved"]
    if held.unused < MUCH * held.allocated or held.unused < GROWS * max(held.unused_before, 1.0):
        return
    yield Candidate(
        kind="host-fragmentation",
        claims=[],
        evidence=[
            Evidence("memory is reserved beyond the most that was allocated", held.unused / GB, "GB"),
            Evidence("at a third of the recording it was", held.unused_before / GB, "GB"),
        ],
        costless=True,
        check="torch.cuda.memory_stats(): reserved_bytes against allocated_bytes, at their peaks",
    )
