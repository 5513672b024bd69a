"""What hardware counters show to limit each kernel family."""

from __future__ import annotations

from fathom.diagnosis.signals import Family, Signals

NOT_KNOWN = "not known"
WELL = 0.6  # of a resource: below it, its share says little beside the cause


def limited_of(signals: Signals) -> dict[str, str]:
    """`issue slots used, 70 %` or `latency`, by family; {} where no counters were read."""
    known: list[Family] = signals.get("kernels.counted").value or []
    return {one.name: _words(one) for one in known if one.measures and one.bound not in ("", NOT_KNOWN)}


def _words(one: Family) -> str:
    return f"{one.bound}, {100 * one.used:.0f} %" if one.used is not None and one.used >= WELL else one.bound
