"""An examination as HTML for a notebook: the verdict, the ledger by group, the largest findings."""

from __future__ import annotations

from html import escape

from fathom.analysis.results import Device, Examination
from fathom.report import units
from fathom.report.findings import gain_of
from fathom.report.heading import NO_STEP, REQUESTS, advice
from fathom.report.ledger import groups, name, step_ms
from fathom.visible import visible

ENTRIES = 5  # of a group
FINDINGS = 3
_NUMBER = 'style="text-align:right"'


def to_html(examination: Examination) -> str:
    """Return an HTML fragment without classes or scripts, with every name escaped."""
    ledgers = [_ledger(device) for device in examination.devices[:1]]
    return visible("".join([_title(examination), _verdict(examination), *ledgers, _findings(examination)]))


def _title(examination: Examination) -> str:
    step = examination.step
    ms = step.clean_ms if step.clean_ms is not None else step.timeline_ms
    missing = REQUESTS if examination.serving else NO_STEP
    taken = missing if ms is None else f"{step.kind or 'step'} of {units.duration(ms)}"
    return f"<h4>{escape(examination.sounding.name or 'sounding')}: {escape(taken)}</h4>"


def _verdict(examination: Examination) -> str:
    verdict = examination.verdict
    if not examination.integrity.ok:
        return "<p><b>The recording is damaged.</b></p>"
    if verdict is None:
        return ""
    return f"<p><b>{escape(verdict.headline)}</b><br>{escape(advice(examination))}</p>"


def _ledger(device: Device) -> str:
    """Return the groups of a device's ledger with their largest entries, and the sum, which is the step."""
    total = step_ms(device)
    rows = []
    for group in groups(device):
        rows.append(_row(group.kind.title or group.kind.name, group.ms, total, "b"))
        rows += [_row(name(entry), entry.ms, total, "span") for entry in group.entries[:ENTRIES]]
        if rest := group.entries[ENTRIES:]:
            ms = sum(entry.ms for entry in rest)
            rows.append(_row(f"{len(rest)} other {group.kind.members}", ms, total, "i"))
    rows += [_row(entry.entry, entry.ms, total, "i") for entry in device.ledger if entry.ms < 0]
    if not rows:
        return ""
    label = "step, as profiled" if device.observer_ms is None else "clean step"
    head = f"<tr><th>{escape(device.label)}</th><th>ms</th><th>%</th></tr>"
    return f"<table>{head}{''.join(rows)}{_row(label, total, total, 'b')}</table>"


def _row(label: str, ms: float, total: float, tag: str) -> str:
    cells = (f"{ms:.{units.decimals(total)}f}", f"{100 * ms / total:.1f}" if total else units.MISSING)
    numbers = "".join(f"<td {_NUMBER}>{cell}</td>" for cell in cells)
    return f"<tr><td><{tag}>{escape(label)}</{tag}></td>{numbers}</tr>"


def _findings(examination: Examination) -> str:
    lines = (escape(f"{gain_of(finding)}: {finding.title}") for finding in examination.findings[:FINDINGS])
    listed = "".join(f"<li>{line}</li>" for line in lines)
    return f"<p><b>Findings</b></p><ul>{listed}</ul>" if listed else ""
