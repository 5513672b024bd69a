"""Launches that read more from memory than the program has there: the same data again and again."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, Found, rule
from fathom.diagnosis.signals import Family, Signals

AGAIN = 2.0  # times all that is allocated: by less, rounding and what the driver holds may explain it
SHARE = 0.03  # of the step
CACHED = 0.6  # of the time of a byte from memory, from the cache, where neither was measured


@rule("kernels-l2-thrash")
def cache(signals: Signals) -> Found:
    """What a launch reads is bounded by what there is, unless it is read anew."""
    for family in signals["kernels.counted"]:
        read = family.measures.get("dram_bytes")
        if read is None or not family.name or family.ms < SHARE * signals["step.timeline_ms"]:
            continue
        held = signals["device.allocated_bytes"]
        if read > AGAIN * held:
            yield _candidate(family, read, held, signals.get("kernels.ceilings").value or {})


def _candidate(family: Family, read: float, held: float, rates: dict[str, float]) -> Candidate:
    """All but the first pass from the cache."""
    known = rates.get("memory") and rates.get("cache")
    cached = min(rates["memory"] / rates["cache"], 1.0) if known else CACHED
    factor = held / read + (1 - held / read) * cached
    return Candidate(
        kind="kernels-l2-thrash",
        claims=[Claim("compute", family.name, (1 - factor) * family.ms)],
        evidence=[
            Evidence("a launch moves through memory", read / 1e6, "MB"),
            Evidence("all tensors of the program take at most", held / 1e6, "MB"),
            Evidence("it takes", family.ms, "ms a step"),
        ],
        changes=(f"family:{family.name}={factor:.6f}",),
        doubt=0.4,
        confidence=0.8,
        check=f"fathom kernel SOUNDING '{family.name[:40]}'",
        family=family.name,
    )
