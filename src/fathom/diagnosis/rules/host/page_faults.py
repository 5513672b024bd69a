"""Memory that steps on a CPU free and then request again."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import in_clean_rows, ms_of, on_processor, part_of, rows
from fathom.diagnosis.rules.rule import Candidate, Evidence, NotAnalysed, Outcomes, rule
from fathom.diagnosis.signals import Signals, Usage
from fathom.units import MS_PER_S, NS_PER_S

PAGE = 4096  # bytes; of larger pages, more growth is subtracted
# System time of a page, at most: to fill it with zeros, to map it and to take it back. Time beyond this is
# due to other system calls. On two cores of an EPYC, programs used 2.8 to 3.3 µs; 2.3 were measured alone.
MOST_S, BESIDE = 4e-6, 1.5  # where it was not measured, and times what was measured
DOUBT, MIXED = 0.3, 0.8  # of the gain: if faults explain all system time, or only part of it
WORTH = 0.02  # of the step, at least


@rule("host-page-faults")
def page_faults(signals: Signals) -> Outcomes:
    """Find steps whose thread requests many pages again, although the program's memory does not grow."""
    if not on_processor(signals) or signals["host.allocator"] != "glibc":
        return
    usage: Usage = signals["host.usage"]
    if usage.grown is None:
        yield NotAnalysed("the growth of resident memory was not recorded")
        return
    taken = rows(signals, Entry.OPS, Entry.PYTHON) if signals["step.clean_ledger"] else []
    room, system = in_clean_rows(signals, taken), usage.system * signals["step.mean_ms"]
    each_s = MOST_S if usage.fault_ns is None else BESIDE * usage.fault_ns / NS_PER_S
    most = MS_PER_S * each_s * (usage.faults - max(usage.grown, 0.0) / PAGE)
    gain = min(system, most, room)
    if gain <= 0:
        return
    yield Candidate(
        claims=part_of(taken, gain / room * ms_of(taken)),
        evidence=[
            Evidence("page faults of the thread that runs the steps", usage.faults, "per step"),
            Evidence("system time of this thread", system, "ms per step"),
        ],
        gain_ms=gain,
        doubt=min((DOUBT if system <= most else MIXED) + usage.ticks**-0.5, 1.0),
        confidence=0.85,
        check="run the program with the remedy's variables, and compare the steps",
        least=WORTH,
    )
