"""Iterators over a loader that the program makes anew for each batch."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import part_of
from fathom.diagnosis.rules.input.loader import lost_of, waiting
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals

LEAST = 0.05  # of the step: a cheap iterator, as over a small table, does no harm
# Of the time to shuffle: releasing the indices takes as long again, measured for 50 thousand to 1.6 million.
RELEASED = 0.3
UNKNOWN = "the wait for a new iterator's workers was not timed separately from the wait for their batches"
CHECK = "keep the iterator and record again: in the table `input`, `batch` then counts up from step to step"


@rule("input-iterator-each-step")
def made_anew(signals: Signals) -> Candidates:
    """Find waits for the first batch of an iterator in each step, beyond the time to make the batch."""
    anew, workers = signals["input.anew_ms"], signals["input.about"].workers
    if not anew or (not workers and anew < LEAST * signals["step.ms"]):
        return
    evidence = [Evidence("wait for a new iterator, without the time to make its batch", anew, "ms per step")]
    if workers:
        evidence.append(Evidence("workers of the loader", workers, ""))
        yield Candidate(evidence=evidence, costless=True, unpredicted=UNKNOWN, check=CHECK)
        return
    seen, lost = lost_of(signals)
    saved = min(anew, lost)
    yield Candidate(
        claims=part_of(waiting(signals), saved),
        evidence=evidence,
        changes=("input=0",) if seen is None else (),
        part=saved / lost if lost else 0.0,
        spill=(Entry.PYTHON,),
        gain_ms=None if seen is None else saved,
        doubt=RELEASED,
        check=CHECK,
    )
