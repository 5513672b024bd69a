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


def agree(found: Examination) -> None:
    """Sums, headline, shares and bounds."""
    step = found.step
    headline = step.clean_ms if step.clean_ms is not None else step.timeline_ms
    for device in found.devices:
        if not device.ledger:
            continue
        whole = headline if device.rank == found.devices[0].rank else sum(e.ms for e in device.ledger)
        assert sum(entry.ms for entry in device.ledger) == pytest.approx(whole)
        assert sum(entry.ms for entry in device.profiled_ledger) == pytest.approx(device.total_ms)
        if device.mean_ledger:
            assert sum(entry.ms for entry in device.mean_ledger) == pytest.approx(step.clean_mean_ms)
            assert step.basis_ms == step.clean_mean_ms
        elif device is found.devices[0]:
            assert step.basis_ms == headline
        assert_work_is_not_rescaled(device)
    for one in found.findings:
        within(one, found)
    for lead in found.leads:
        assert step.basis_ms and lead.gain_share == pytest.approx(lead.gain_ms / step.basis_ms)
        assert lead.gain_ms <= lead.ms * (1 + 1e-9)


def assert_work_is_not_rescaled(device: Device) -> None:
    work = {(e.entry, e.detail): e for e in device.profiled_ledger if e.entry in ("compute", "copy")}
    for entry in device.ledger:
        known = work.get((entry.entry, entry.detail))
        if known is not None and known.count and entry.count == pytest.approx(known.count):
            assert not entry.inferred


def within(one: Finding, found: Examination) -> None:
    """A share is of the headline's step, and no gain exceeds it or the rows that it claims."""
    if one.gain_ms is None or one.observed or not found.devices:
        return
    basis = found.step.basis_ms
    assert basis and one.share == pytest.approx(one.gain_ms / basis)
    assert one.gain_ms <= basis * (1 + 1e-9)
    device = found.devices[0]
    rows = device.mean_ledger or device.ledger
    held = {(entry.entry, entry.detail): entry.ms for entry in rows}
    for claim in one.claims:
        assert claim.ms <= held[claim.entry, claim.detail] * (1 + 1e-9)


@pytest.mark.parametrize("archive", ARCHIVES)
def test_every_figure_of_a_recording_is_of_one_step(archive: Path) -> None:
    assert rules()
    for found in of_archive(archive).values():
        agree(found)


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name)
def test_every_figure_of_an_example_is_of_one_step(packed: Path) -> None:
    agree(fathom.open(packed).examine())
