"""The limit of each kernel family, by hardware counters."""

from __future__ import annotations

from fathom.diagnosis.signals import Family, Signals

NOT_KNOWN = "not known"
WELL = 0.6  # of a resource: below it, the share adds little to the name


def limited_of(signals: Signals) -> dict[str, str]:
    """`issue slots used, 70 %` or `latency`, by family; {} without counters."""
    known: list[Family] = signals.get("kernels.counted").value or []
    return {
        family.name: _words(family)
        for family in known
        if family.measures and family.bound not in ("", NOT_KNOWN)
    }


def _words(family: Family) -> str:
    return (
        f"{family.bound}, {100 * family.used:.0f} %"
        if family.used is not None and family.used >= WELL
        else family.bound
    )
