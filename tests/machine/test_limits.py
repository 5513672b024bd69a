"""Which ceilings bound work."""

from __future__ import annotations

import pytest

from fathom.machine import Ceiling, limits_of, to_records, why_no_limits

RATES = {"host.copy": 30e9, "host.matmul.fp32": 4e11}


def machine(others: float | None):
    """A processor whose ceilings were measured while others used that share of it."""
    conditions = {} if others is None else {"others": others}
    ceilings = [
        Ceiling(id=name, value=value, unit="", low=value, high=value, samples=3, conditions=conditions)
        for name, value in RATES.items()
    ]
    return {"host": {}, "gpus": [], "ceilings": to_records(ceilings)}


@pytest.mark.parametrize("others", [None, 0.0, 0.25])
def test_a_processor_is_bounded_by_its_ceilings(others):
    limits = limits_of(machine(others), None)
    assert limits.memory == 30e9 and limits.arithmetic["matmul.fp32"] == 4e11


def test_nothing_bounds_a_processor_that_others_used_meanwhile():
    busy = machine(0.61)
    assert limits_of(busy, None) is None
    assert "61 %" in why_no_limits(busy, None) and "fathom machine measure" in why_no_limits(busy, None)


def test_why_nothing_bounds_a_processor_that_was_never_measured():
    assert "ceilings of the recorded machine were not measured" in why_no_limits(
        {"host": {}, "gpus": []}, None
    )
