"""Kernel families with their launch, limits and counters."""

from __future__ import annotations

from fathom.analysis.measures import Measure, Portrait
from fathom.analysis.results import LedgerRow
from fathom.report import units
from fathom.report.kernel.depth import error, value
from fathom.report.ledger import name
from fathom.report.page.colours import of_entry
from fathom.report.page.recording import Recording, Section
from fathom.units import US_PER_MS

MOST = 30  # families
ADVISED = 24  # counters that are shown for a family


def section(recording: Recording) -> Section | None:
    """Return the longest families; None if no kernels were recorded."""
    listed = sorted(recording.portraits, key=lambda portrait: -portrait.ms)
    if not listed:
        return None
    content = {
        "kernels": [_kernel(portrait, recording.noun) for portrait in listed[:MOST]],
        "left": max(len(listed) - MOST, 0),
        "noun": recording.noun,
    }
    return Section("kernels", "Kernels", content)


def _kernel(portrait: Portrait, noun: str) -> dict[str, object]:
    launch, median_us = portrait.launch, portrait.time_us.get("p50")
    facts = {
        f"launches per {noun}": None if portrait.launches is None else f"{portrait.launches:.3g}",
        "median launch": units.duration(median_us / US_PER_MS) if median_us else None,
        "grid": launch.grid,
        "block": launch.block,
        "registers": launch.registers,
        "shared memory": units.memory(launch.shared_bytes) if launch.shared_bytes else None,
        "occupancy": f"{100 * portrait.occupancy.share:.0f} %" if portrait.occupancy else None,
    }
    return {
        "name": name(LedgerRow(portrait.entry, portrait.family, portrait.ms)),
        "full": portrait.family,
        "colour": of_entry(portrait.entry),
        "ms": units.duration(portrait.ms),
        "bound": portrait.bound or units.MISSING,
        "used": "" if portrait.used is None else f"{100 * portrait.used:.0f} %",
        "facts": [(key, value) for key, value in facts.items() if value is not None],
        "reasons": [reason.text for reason in portrait.reasons],
        "measures": [_measure(m) for m in sorted(portrait.measures, key=_rank) if _counted(m)][:ADVISED],
        "abstained": [(entry.what, entry.why) for entry in portrait.abstained],
    }


def _rank(measure: Measure) -> tuple[bool, bool]:
    """Sort values outside their healthy range first, then the use of resources."""
    return not measure.advice, not measure.resource


def _counted(measure: Measure) -> bool:
    """Return whether a value differs from zero by more than its error."""
    return bool(measure.advice) or abs(measure.value) > 2 * measure.error


def _measure(measure: Measure) -> dict[str, str]:
    margin = f" ± {error(measure)}" if measure.error else ""
    return {
        "group": measure.group,
        "title": measure.title,
        "value": value(measure) + margin,
        "meaning": measure.advice or measure.meaning,
    }
