"""Report, findings, leads and the ledger agree on one step, in every kept recording."""

from __future__ import annotations

from pathlib import Path

import pytest

import fathom
from fathom.analysis.results import Device, Examination, Finding
from fathom.diagnosis.rules import rules
from tests.support.examined import ARCHIVES, of_archive
from tests.support.paths import EXAMPLES

PACKED = sorted(EXAMPLES.glob("*-h200.fathom.zip"))
HOST = ("idle: dispatching", "idle: python", "idle: launch latency")


def agree(examination: Examination) -> None:
    """Sums, headline, shares and bounds."""
    step = examination.step
    headline = step.clean_ms if step.clean_ms is not None else step.timeline_ms
    for device in examination.devices:
        if not device.ledger:
            continue
        total = headline if device.rank == examination.devices[0].rank else sum(e.ms for e in device.ledger)
        assert sum(entry.ms for entry in device.ledger) == pytest.approx(total)
        assert sum(entry.ms for entry in device.profiled_ledger) == pytest.approx(device.total_ms)
        if device.mean_ledger:
            assert sum(entry.ms for entry in device.mean_ledger) == pytest.approx(step.clean_mean_ms)
            assert step.basis_ms == step.clean_mean_ms
        elif device is examination.devices[0]:
            assert step.basis_ms == headline
        assert_work_is_not_rescaled(device)
    for finding in examination.findings:
        within(finding, examination)
    for lead in examination.leads:
        assert step.basis_ms and lead.gain_share == pytest.approx(lead.gain_ms / step.basis_ms)
        assert lead.gain_ms <= lead.ms * (1 + 1e-9)


def assert_work_is_not_rescaled(device: Device) -> None:
    work = {(e.entry, e.detail): e for e in device.profiled_ledger if e.entry in ("compute", "copy")}
    for entry in device.ledger:
        known = work.get((entry.entry, entry.detail))
        if known is not None and known.count and entry.count == pytest.approx(known.count):
            assert not entry.inferred


def within(finding: Finding, examination: Examination) -> None:
    """A share is of the headline's step, and no gain exceeds it or the rows that it claims."""
    if finding.gain_ms is None or finding.observed or not examination.devices:
        return
    basis = examination.step.basis_ms
    assert basis and finding.share == pytest.approx(finding.gain_ms / basis)
    assert finding.gain_ms <= basis * (1 + 1e-9)
    device = examination.devices[0]
    rows = device.mean_ledger or device.ledger
    by_name = {(entry.entry, entry.detail): entry.ms for entry in rows}
    for claim in finding.claims:
        assert claim.ms <= by_name[claim.entry, claim.detail] * (1 + 1e-9)


@pytest.mark.parametrize("archive", ARCHIVES)
def test_every_figure_of_a_recording_is_of_one_step(archive: Path) -> None:
    assert rules()
    for result in of_archive(archive).values():
        agree(result)


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name)
def test_every_figure_of_an_example_is_of_one_step(packed: Path) -> None:
    examination = fathom.open(packed).examine()
    agree(examination)
    gains = [finding.gain_ms for finding in examination.findings if finding.gain_ms is not None]
    assert gains and all(gain > 0 for gain in gains), "a finding saves nothing in the clean step"
