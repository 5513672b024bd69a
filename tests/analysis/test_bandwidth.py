"""Bus bandwidth against the worked examples of NCCL's tests, and ceilings by size."""

from __future__ import annotations

import pytest

from fathom.analysis.communication import at_their_size, bus_factor, ceilings_of
from fathom.analysis.communication.results import Collective
from fathom.analysis.results import LedgerRow


# https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md: all-reduce S/t * (2*(n-1)/n),
# reduce-scatter, all-gather and all-to-all S/t * ((n-1)/n), broadcast and reduce S/t.
@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [
        ("all_reduce", 8, 1.75), ("all_reduce", 2, 1.0), ("all_gather", 8, 0.875),
        ("reduce_scatter", 4, 0.75), ("all_to_all", 8, 0.875), ("broadcast", 8, 1.0), ("reduce", 8, 1.0),
        ("send_recv", 2, 1.0), ("all_reduce", 1, 0.0), ("combine", 8, None),
    ],
)  # fmt: skip
def test_factors_are_those_of_nccl_tests(operation: str, ranks: int, factor: float | None) -> None:
    assert bus_factor(operation, ranks) == factor


def test_a_measured_ceiling_is_that_of_the_message_size() -> None:
    row = {
        "id": "collective.all_reduce",
        "value": 100e9,
        "unit": "B/s",
        "low": 1.0,
        "high": 1.0,
        "samples": 3,
    }
    series = [{"bytes": 2**20, "value": 10e9}, {"bytes": 2**24, "value": 90e9}]
    ceilings = ceilings_of({"ceilings": [{**row, "series": series}]}, "NVIDIA H200")
    assert ceilings.at("all_reduce", 2**20) == (10e9, "measured at 1 MiB")
    rate, source = ceilings.at("all_reduce", 2**22)
    assert rate == pytest.approx(50e9) and source.startswith("measured")
    assert ceilings.at("all_gather", 2**22)[1] == "datasheet"


def test_without_measurement_and_datasheet_there_is_no_ceiling() -> None:
    assert ceilings_of({}, "an unknown chip").at("all_reduce", 1e6) == (None, "")


def collective(family: str, count: float, size: float, ceiling: float, source: str) -> Collective:
    times = dict.fromkeys(("min_ms", "median_ms", "max_ms", "total_ms", "overlapped_ms", "exposed_ms"), 1.0)
    return Collective(
        "all_reduce", "NCCL", count, overlap=0.0, bytes=size, ceiling_bytes_per_s=ceiling, ceiling=source,
        families=[family], **times,
    )  # fmt: skip


def test_the_ledger_has_the_ceiling_of_the_message_sizes() -> None:
    rows = [
        LedgerRow("moving bytes", family, 5.0, 1.0, bound="link")
        for family in ("small", "mixed", "published")
    ]
    at_their_size(
        rows,
        [
            collective("small", 1.0, 2**20, 10e9, "measured at 1 MiB"),
            collective("mixed", 3.0, 2**20, 10e9, "measured at 1 MiB"),
            collective("mixed", 1.0, 2**20, 100e9, "measured at 1 GiB"),
            collective("published", 1.0, 2**20, 450e9, "datasheet"),
        ],
        100e9,
    )
    assert [row.at_ceiling_ms for row in rows] == pytest.approx([10.0, (3 * 10 + 1) / 4, 1.0])
