"""Tensors offloaded to host memory although the device has room for them."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, claims_of, rule, usual
from fathom.diagnosis.signals import Signals
from fathom.units import MB

LARGE = 32e6  # bytes per step: fewer are results, not activations
BACK = 0.5  # of the offloaded bytes are copied back
FREE = 0.6  # of the device's memory in use


@rule("kernels-memory-headroom")
def offloading(signals: Signals) -> Candidates:
    """Find copies to the host that are copied back in every step."""
    copies = [work for work in signals["kernels.work"] if work.entry == Entry.COPY]
    out = [work for work in copies if work.family.startswith("DtoH")]
    back = [work for work in copies if work.family.startswith("HtoD")]
    left, came = (sum(work.bytes or 0.0 for work in way) for way in (out, back))
    if left < LARGE or came < BACK * left:
        return
    used, total = signals["device.used_bytes"], signals["device.memory_bytes"]
    if used > FREE * total:
        return
    yield Candidate(
        kind="kernels-memory-headroom",
        claims=claims_of([*out, *back]),
        evidence=[
            Evidence("copied to host memory", left / MB, "MB per step"),
            Evidence("peak use of the device's memory", 100 * used / total, "%"),
        ],
        changes=("copy:DtoH=0", "copy:HtoD=0"),
        doubt=0.3,
        confidence=0.8,
        check="switch offloading off, and compare peak memory and the step",
        source=usual((work.source, work.ms) for work in out),
    )
