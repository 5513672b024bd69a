"""Fractions of a ceiling: the time that the work needs over the time it took, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from fathom.machine.limits import Limits
from fathom.referee.ceilings import CallWork, fraction, placed
from fathom.referee.child.side import save, snapshot
from fathom.referee.compare.decode import read
from fathom.referee.inspecting import written

MIXED = {0.0: 4.0e12, 0.5: 3.0e12, 1.0: 5.0e12}
LIMITS = Limits({"matmul.bf16": 8e14}, memory=5.0e12, mixed=MIXED, cache=10e12, cache_bytes=10**6)
TOOK_NS = 1000.0


@pytest.mark.parametrize(
    ("work", "cache", "needed_ns", "bound"),
    [
        (CallWork(bytes=3e9, written=0.0), "cold", 750e3, "hbm"),
        (CallWork(bytes=3e9, written=1.5e9), "cold", 1000e3, "hbm"),
        (CallWork(bytes=3.5e9, written=0.875e9), "cold", 1000e3, "hbm"),  # between reading and copying
        (CallWork(bytes=5e9, written=9e9), "cold", 1000e3, "hbm"),  # more than must be moved: all of it
        (CallWork(bytes=5e9), "cold", 1000e3, "hbm"),  # not known: the fastest
        (CallWork(bytes=1e6, written=5e5), "warm", 100.0, "l2"),
        (CallWork(flops=8e11, bytes=1e6, unit="matmul.bf16"), "cold", 1e6, "matmul.bf16"),
    ],
)
def test_memory_is_as_fast_as_its_mix_of_reads_and_writes(
    work: CallWork, cache: str, needed_ns: float, bound: str
) -> None:
    result = fraction(TOOK_NS, work, LIMITS, cache)
    assert result is not None and result.bound == bound
    assert result.at_ceiling_ns == pytest.approx(needed_ns) and result.fraction == pytest.approx(
        needed_ns / 1000
    )


def test_what_a_call_writes_are_its_results_and_what_it_changes_not_gradients_taken_afterwards(
    tmp_path: Path,
) -> None:
    torch = pytest.importorskip("torch")
    x, state = torch.ones(5, requires_grad=True), torch.zeros(3)
    before = ((x.detach().clone(), state.clone()), {})
    state += 1
    said = save(snapshot(2 * x, ((x, state), {}), 1), before, tmp_path / "x")
    saved = read(said | {"inputs": ""}, tmp_path / "x")
    assert len(saved.leaves) == 3 and written(saved) == 4 * (5 + 3)


def test_without_work_or_rates_there_is_no_fraction() -> None:
    assert fraction(TOOK_NS, CallWork(), LIMITS, "cold") is None
    assert fraction(TOOK_NS, CallWork(bytes=1e6), Limits(), "cold") is None


def test_what_fits_into_a_cache_of_unknown_rate_is_measured_by_memory_unless_it_was_faster() -> None:
    host = Limits({"matmul.fp32": 1e12}, memory=1e11, cache_bytes=10**6, memory_name="host memory")
    slow = fraction(TOOK_NS, CallWork(bytes=5e4), host, "")
    assert slow is not None and (slow.bound, slow.fraction) == ("host memory", pytest.approx(0.5))
    assert fraction(TOOK_NS, CallWork(bytes=2e5), host, "") is None
    known = fraction(TOOK_NS, CallWork(bytes=5e4, flops=1e8, unit="matmul.fp32"), host, "")
    assert known is not None and known.bound == "matmul.fp32"


def test_ceilings_of_a_busy_machine_are_not_called_unknown():
    value = {"value": 1e10, "low": 9e9, "high": 11e9, "samples": 9, "unit": "B/s"}
    busy = {"id": "host.read", **value, "conditions": {"others": 0.9}}
    (never,) = placed([], CallWork(flops=1.0), {}, "cpu")
    assert "were not measured" in never
    (doubtful,) = placed([], CallWork(flops=1.0), {"ceilings": [busy]}, "cpu")
    assert "others used 90 % of the processors" in doubtful
