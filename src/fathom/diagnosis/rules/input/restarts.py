"""Workers that are started for every epoch."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals


@rule("input-worker-restart")
def restarts(signals: Signals) -> Candidates:
    """Find steps in which a loader restarts; persistent workers would still have to make the first batch."""
    took, workers = signals["input.restarts_ms"], signals["input.workers"]
    if not took or not workers:
        return
    stages = signals.get("input.stages_ms").value or {}
    first = stages.get("fetch", 0.0) + stages.get("collate", 0.0)
    saved = sum(max(ms - first, 0.0) for ms in took) / signals["input.steps"]
    lasting = sum(took) / signals["input.steps"]
    yield Candidate(
        kind="input-worker-restart",
        claims=[],
        evidence=[
            Evidence(f"time to restart the loader's {workers} workers", sum(took) / len(took), "ms"),
            Evidence("the same, spread over all steps", lasting, "ms per step"),
            Evidence("time for the first batch, also with persistent workers", first, "ms"),
        ],
        gain_ms=(saved + lasting) / 2,
        doubt=max((lasting - saved) / (lasting + saved), 0.15) if lasting else 0.15,
        confidence=0.9,
        check="persistent_workers=True, and time an epoch",
    )
