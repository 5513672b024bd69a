"""Communication equals TraceLens's documented definition, counted from raw events."""

from __future__ import annotations

import pytest

from benchmarks.accuracy.overlap import KERNELS, MEMSETS, by_definition, by_fathom
from tests.support.paths import TRACES

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the shared traces are not here")


@pytest.mark.parametrize("name", ["mi300-resnet", "dlrm/rank-0"])
def test_communication_equals_the_definition(name: str) -> None:
    path = TRACES / f"{name}.json.gz"
    own, defined = by_fathom(path), by_definition(path)
    assert own == pytest.approx(defined, abs=1e-6) and own["total"] > 5


def test_tracelens_code_counts_memsets_as_computation() -> None:
    counted = by_definition(TRACES / "mi300-resnet.json.gz", KERNELS + MEMSETS)
    timeline = {"total": 71.516523, "overlapped": 16.145305, "exposed": 55.371218}  # TraceLens's
    assert counted == pytest.approx(timeline, abs=1e-4)
