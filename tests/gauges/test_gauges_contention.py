"""Processors that others use while they are measured."""

from __future__ import annotations

from collections import namedtuple

import pytest

from fathom.gauges.contention import Contention

System = namedtuple("System", "user nice system idle iowait irq softirq steal guest guest_nice")
Own = namedtuple("Own", "user system children_user children_system iowait")


def contention(used: System, own: Own) -> Contention:
    """Contention when everything began at zero."""
    systems, owns = iter([System(*[0.0] * 10), used]), iter([Own(*[0.0] * 5), own])
    result = Contention(lambda: next(systems), lambda: next(owns))
    with result:
        pass
    return result


@pytest.mark.parametrize(
    ("used", "own", "others"),
    [
        (System(8, 0, 0, 2, 0, 0, 0, 0, 0, 0), Own(8, 0, 0, 0, 0), 0.0),
        (System(8, 0, 0, 2, 0, 0, 0, 0, 0, 0), Own(3, 0, 0, 0, 0), 0.5),
        (System(8, 0, 0, 2, 0, 0, 0, 0, 0, 0), Own(1, 1, 2, 4, 9), 0.0),  # workers that ended are ours
        (System(4, 0, 0, 3, 0, 0, 0, 3, 0, 0), Own(4, 0, 0, 0, 0), 0.3),  # stolen by the hypervisor
        (System(4, 0, 0, 1, 5, 0, 0, 0, 4, 0), Own(4, 0, 0, 0, 0), 0.0),  # waiting for disks is idle
    ],
)
def test_time_used_by_others(used, own, others):
    result = contention(used, own)
    assert result.others == pytest.approx(others)
    assert bool(result.flags) == (others > 0.1)


def test_no_elapsed_time():
    assert contention(System(*[0.0] * 10), Own(*[0.0] * 5)).flags == []
