"""The figures of a sounding for an experiment tracker."""

from __future__ import annotations

from collections.abc import Iterator

from fathom.analysis.results import Examination, Finding
from fathom.api import Sounding
from fathom.redaction import redact_text
from fathom.units import MS_PER_S
from fathom.visible import visible

PREFIX = "fathom"


def summary(sounding: Sounding) -> dict[str, float]:
    """Return the figures by name: `fathom/step_ms`, rates, MFU, and `fathom/ledger/ENTRY` in ms per step.

    What was not measured is left out.
    """
    result = sounding.examine()
    figures = {f"{PREFIX}/{name}": value for name, value in _figures(result) if value is not None}
    device = next(iter(result.devices), None)
    for row in device.ledger if device else []:
        name = f"{PREFIX}/ledger/{row.entry.replace(': ', '-').replace(' ', '_')}"
        figures[name] = figures.get(name, 0.0) + row.ms
    return figures


def _figures(result: Examination) -> Iterator[tuple[str, float | None]]:
    step, device = result.step, next(iter(result.devices), None)
    yield "step_ms", step.clean_ms if step.clean_ms is not None else step.timeline_ms
    yield "steps_per_s", MS_PER_S / step.basis_ms if step.basis_ms else None
    yield "samples_per_s", step.samples_per_s
    yield "tokens_per_s", step.tokens_per_s
    used = device.utilisation if device else None
    yield "mfu", used.mfu if used else None
    yield "speed_of_light_ms", device.at_ceiling_ms if device else None
    yield "input_wait_ms", result.input.wait_ms if result.input else None
    yield "energy_per_step_j", result.energy.per_step_j if result.energy else None
    yield "peak_memory_bytes", result.memory.peak_allocated_bytes if result.memory else None
    yield "predicted_gain_ms", next((f.gain_ms for f in result.findings if f.gain_ms is not None), None)


def verdict(sounding: Sounding) -> str:
    """Return the verdict and the first remedy as text; empty without a verdict."""
    found = sounding.examine().verdict  # words: ok
    return "" if found is None else safe(f"{found.headline} {found.action}".strip())


def rows_of_findings(sounding: Sounding) -> list[tuple[str, str, float | None, str]]:
    """Return id, title, predicted gain in ms, and remedy of each finding."""
    return [_row(finding) for finding in sounding.findings]


def _row(finding: Finding) -> tuple[str, str, float | None, str]:
    return finding.id, safe(finding.title), finding.gain_ms, safe(finding.remedy)


def safe(text: str) -> str:
    """Return the text without secrets and control characters."""
    return visible(redact_text(text))
