"""Memory that steps on a processor free, and take from the kernel again."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import in_clean_rows, ms_of, on_processor, part_of, rows
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals, Usage
from fathom.units import MB, MS_PER_S

PAGE = 4096  # bytes
# The kernel's time for a page, at most: to fill it with zeros, to map it and to take it back. On two cores of
# a virtual machine (EPYC), two programs used 2.8 to 3.3 µs. Time beyond this is due to other system calls.
MOST_S = 4e-6
WORTH = 0.02  # of the step, at least


@rule("host-page-faults")
def page_faults(signals: Signals) -> Candidates:
    """Find steps whose thread gets many pages from the kernel, although its memory does not grow."""
    if not on_processor(signals) or signals.get("host.allocator").value != "glibc":
        return
    usage: Usage = signals["host.usage"]
    mean = signals["step.mean_ms"]
    again = usage.faults - max(usage.grown, 0.0) / PAGE
    gain = min(usage.system * mean, MS_PER_S * MOST_S * again)
    taken = rows(signals, Entry.OPS, Entry.PYTHON)
    room = in_clean_rows(signals, taken)
    if not 0 < gain <= room:
        return
    yield Candidate(
        claims=part_of(taken, gain / room * ms_of(taken)),
        evidence=[
            Evidence("page faults of the thread that runs the steps", usage.faults, "per step"),
            Evidence("memory that it takes from the kernel again", again * PAGE / MB, "MB per step"),
            Evidence("time of the thread in the kernel", usage.system * mean, "ms per step"),
        ],
        gain_ms=gain,
        doubt=0.3,
        confidence=0.85,
        check="run the program with the remedy's variables, and compare the steps",
        least=WORTH,
    )
