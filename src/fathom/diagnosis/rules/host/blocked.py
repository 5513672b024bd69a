"""The training thread blocked in a system call: sleeping, reading, writing, waiting for a lock."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.host.waits import beneath_saving
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rule
from fathom.diagnosis.signals import HostLine, Signals

ENTRY = Entry.BLOCKED
LEAST = 0.03  # of the step: less is noise on a busy host
LEFT = 0.1  # of the time: other work of the same line


@rule("host-blocked")
def blocked(signals: Signals) -> Candidates:
    """Report each line that blocks for at least `LEAST` of the step."""
    least, saving = LEAST * signals["step.timeline_ms"], beneath_saving(signals)
    for line in signals["host.lines"]:
        if line.entry == ENTRY and line.ms >= least and line not in saving:
            yield _candidate(line)


def _candidate(line: HostLine) -> Candidate:
    return Candidate(
        kind="host-blocked",
        claims=[Claim(line.entry, line.detail, line.ms)],
        evidence=[Evidence(f"blocked in {line.detail}", line.ms, "ms per step")],
        gain_ms=(1 - LEFT) * line.ms,
        doubt=0.2,
        confidence=0.85,
        check=f"the call at {line.source}",
        source=line.source,
    )
