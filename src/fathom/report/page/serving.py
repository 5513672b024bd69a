"""Requests of a serving engine: latencies, the ledger of a request, iterations, the slowest requests."""

from __future__ import annotations

from fathom.analysis.serving import MEANING, Entry
from fathom.report import serving, units
from fathom.report.page.recording import Recording, Section


def section(recording: Recording) -> Section | None:
    """Return the account of the requests; None if no engine answered any."""
    result = recording.examination.serving
    if result is None:
        return None
    content = {
        "headline": serving.headline(result),
        "facts": [*serving.facts(result), *filter(None, [serving.floor(result)])],
        "latencies": serving.latencies(result),
        "ledger": [(MEANING[Entry(row.entry)], serving.entry_cells(row)) for row in result.ledger],
        "findings": [
            (f.title, serving.saving(f), f"{f.id}: {serving.evidence(f)}", f.action, f.mechanism)
            for f in result.findings
        ],
        "iterations": [serving.iteration_cells(kind) for kind in result.iterations],
        "slowest": [serving.story(request) for request in result.slowest],
        "mean": units.duration(result.e2e_ms.mean),
    }
    return Section("serving", "Requests", content)
