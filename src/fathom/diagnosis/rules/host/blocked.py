"""The thread that runs the steps sits in a system call: sleeping, reading, writing, waiting for a lock."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.host.waits import beneath_saving
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, Found, rule
from fathom.diagnosis.signals import HostLine, Signals

ENTRY = Entry.BLOCKED
LEAST = 0.03  # of the step: less is the noise of a busy host
LEFT = 0.1  # of it: what else the line does


@rule("host-blocked")
def blocked(signals: Signals) -> Found:
    """Each line that costs the step enough."""
    least, saving = LEAST * signals["step.timeline_ms"], beneath_saving(signals)
    for line in signals["host.lines"]:
        if line.entry == ENTRY and line.ms >= least and line not in saving:
            yield _candidate(line)


def _candidate(line: HostLine) -> Candidate:
    return Candidate(
        kind="host-blocked",
        claims=[Claim(line.entry, line.detail, line.ms)],
        evidence=[Evidence(f"blocked in {line.detail}", line.ms, "ms a step")],
        gain_ms=(1 - LEFT) * line.ms,
        doubt=0.2,
        confidence=0.85,
        check=f"the call at {line.source}",
        source=line.source,
    )
