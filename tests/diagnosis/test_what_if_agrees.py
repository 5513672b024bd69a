"""`what-if` and the report are of one step: the same baseline, and no gain beyond what the ledger holds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fathom
from fathom.analysis.results import Examination
from fathom.api import Sounding
from tests.support.paths import EXAMPLES

PACKED = sorted(EXAMPLES.glob("*-h200.fathom.zip"))
ROUNDING = 1e-6  # of a step
HOOKED = ("input", "gc", "checkpoint", "compilation")
HOST = ("python", "dispatching", "launch-latency")
factors = st.floats(0.0, 1.0)
changes = st.lists(
    st.tuples(st.sampled_from((*HOOKED, *HOST)), factors), min_size=1, max_size=3, unique_by=lambda c: c[0]
)


@cache
def opened(packed: Path) -> tuple[Sounding, Examination]:
    sounding = fathom.open(packed)
    return sounding, sounding.examine()


def rows(examination: Examination) -> dict[str, float]:
    """Milliseconds of the step that gains are of, by entry."""
    device = examination.devices[0]
    values: dict[str, float] = {}
    for row in device.mean_ledger or device.ledger:
        values[row.entry] = values.get(row.entry, 0.0) + row.ms
    return values


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(asked=changes)
def test_a_change_of_the_host_gains_no_more_than_its_idle_rows(
    packed: Path, asked: list[tuple[str, float]]
) -> None:
    sounding, examination = opened(packed)
    result = sounding.what_if(*(f"{selector}={factor:.6f}" for selector, factor in asked))
    basis = examination.step.basis_ms
    assert basis and result.clean_ms == pytest.approx(basis)
    assert result.clean_gain is not None
    values = rows(examination)
    most = sum(ms for entry, ms in values.items() if entry.startswith("idle") and ms > 0)
    if all(selector in HOOKED for selector, _ in asked):
        most = sum(values.get(f"idle: {selector}", 0.0) for selector, _ in asked)
    assert result.clean_gain.ms <= most + ROUNDING * basis
    assert result.clean_predicted_ms == pytest.approx(max(basis - result.clean_gain.ms, 0.0))


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name)
def test_without_a_change_nothing_is_gained(packed: Path) -> None:
    sounding, examination = opened(packed)
    result = sounding.what_if("all-kernels=1")
    assert result.clean_ms == pytest.approx(examination.step.basis_ms)
    assert result.clean_gain is not None and result.clean_gain.ms == pytest.approx(0.0, abs=1e-9)
