"""Communication of real traces, against counts of their raw events."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fathom.analysis import meetings
from fathom.analysis.communication import Communication, late_ranks
from fathom.analysis.results import Examination
from fathom.diagnosis import examine
from fathom.sounding import import_traces, open_store
from tests.support.examined import SCRATCH, of_trace, on_trace, on_traces
from tests.support.paths import TRACES

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the shared traces are not here")

COMMUNICATES = ("nccl", "::ep::internode::", "multimem")  # kernels of these traces, by a part of the name
TRACES_WITH = ("mi300-resnet", "deepseek-train", "b200-eager", "diff-test", "diff-control")
DLRM = 8  # ranks


def events(path: Path) -> list[dict[str, Any]]:
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


@cache
def kernels(name: str) -> list[tuple[bool, int, int]]:
    """Whether each kernel of a trace communicates, its start and its end, in ns."""
    content = json.loads(gzip.decompress((TRACES / f"{name}.json.gz").read_bytes()))
    base = int(content.get("baseTimeNanoseconds") or 0)
    rows = [event for event in content["traceEvents"] if event.get("cat") == "kernel"]
    return [
        (
            any(part in row["name"] for part in COMMUNICATES),
            base + round(row["ts"] * 1000),
            base + round(row["ts"] * 1000) + round(row["dur"] * 1000),
        )
        for row in rows
    ]


def counted(name: str, windows: list[tuple[int, int]]) -> tuple[float, float]:
    """(total, overlapped) ms of communication per window, from one bit for each 100 ns."""
    grain, low = 100, windows[0][0]
    bits = {kind: np.zeros((windows[-1][1] - low) // grain + 1, bool) for kind in (True, False)}
    for kind, start, end in kernels(name):
        first, last = max(start - low, 0) // grain, max(end - low, 0) // grain
        bits[kind][first:last] = True
    used = np.zeros_like(bits[True])
    for start, end in windows:
        used[(start - low) // grain : (end - low) // grain] = True
    total = (bits[True] & used).sum()
    hidden = (bits[True] & bits[False] & used).sum()
    return total * grain / len(windows) / 1e6, hidden * grain / len(windows) / 1e6


def communication(name: str) -> Communication:
    result = of_trace(name).devices[0].communication
    assert result is not None
    return result


@pytest.mark.parametrize("name", on_traces(TRACES_WITH))
def test_total_overlapped_and_exposed_equal_a_count_of_raw_events(name: str) -> None:
    windows = [(w.start_ns, w.end_ns) for w in of_trace(name).devices[0].windows if w.used]
    total, hidden = counted(name, windows)
    result = communication(name)
    assert result.total_ms == pytest.approx(total, rel=0.005)
    assert result.overlapped_ms == pytest.approx(hidden, rel=0.005, abs=0.02)
    assert result.exposed_ms == pytest.approx(result.total_ms - result.overlapped_ms)


@pytest.mark.parametrize("name", on_traces(TRACES_WITH))
def test_exposed_communication_is_that_of_the_ledger(name: str) -> None:
    ledger = of_trace(name).devices[0].profiled_ledger
    entries = ("communication", "moving bytes", "waiting for peers")
    exposed = sum(row.ms for row in ledger if row.entry in entries and row.detail != "before a receive")
    assert communication(name).exposed_ms == pytest.approx(exposed, abs=1e-6)


@on_trace("deepseek-train")
def test_kernels_of_deepep_are_communication() -> None:
    result = communication("deepseek-train")
    assert {row.library for row in result.collectives} == {"DeepEP"}
    assert {row.operation: row.count for row in result.collectives} == {
        "dispatch": 8, "combine": 8, "notify": 16,
    }  # fmt: skip
    figures = (result.total_ms, result.exposed_ms, result.compute_ms)
    assert figures == pytest.approx((113.03, 4.16, 124.34), abs=0.01)


@on_trace("mi300-resnet")
def test_collectives_have_the_sizes_that_torch_recorded() -> None:
    rows = communication("mi300-resnet").collectives
    assert [(row.operation, row.bytes, row.dtype, row.ranks, row.group) for row in rows[:2]] == [
        ("all_reduce", 8_816_192 * 2, "bf16", 8, "default_pg"),
        ("all_reduce", 2_873_320 * 2, "bf16", 8, "default_pg"),
    ]
    first = rows[0]
    took = first.median_ms / 1e3
    assert first.algorithm_bytes_per_s == pytest.approx(17_632_384 / took)
    assert first.bus_bytes_per_s == pytest.approx(17_632_384 / took * 2 * 7 / 8)
    assert (first.ceiling_bytes_per_s, first.ceiling) == (448e9, "datasheet")


@on_trace("diff-test")
def test_sizes_that_vary_with_the_data_share_a_row() -> None:
    """Six steps with another size of one all-to-all in each, 60.28 to 60.46 MB."""
    rows = [row for row in communication("diff-test").collectives if row.dtype == "int32"]
    (large,) = [row for row in rows if row.bytes and row.bytes > 10e6]
    assert large.count == 1 and large.bytes is not None and 60.2e6 < large.bytes < 60.5e6


@cache
def dlrm() -> Examination:
    files = [TRACES / "dlrm" / f"rank-{rank}.json.gz" for rank in range(DLRM)]
    return examine(import_traces(files, Path(SCRATCH.name) / "dlrm.fathom"))


@cache
def raw_all_to_alls() -> list[list[tuple[int, int]]]:
    """(start, end) in µs of the all-to-all kernels of each rank, in order."""
    return [
        sorted(
            (event["ts"], event["ts"] + event["dur"])
            for event in events(TRACES / "dlrm" / f"rank-{rank}.json.gz")
            if event.get("cat") == "kernel" and "SendRecv" in event["name"]
        )
        for rank in range(DLRM)
    ]


@on_trace("dlrm")
def test_all_to_all_is_split_at_the_arrival_of_the_last_rank() -> None:
    raw = raw_all_to_alls()
    arrived = [max(rank[k][0] for rank in raw) for k in range(5)]
    for device, mine in zip(dlrm().devices, raw, strict=True):
        assert device.communication is not None
        rows = [row for row in device.communication.collectives if row.operation == "all_to_all"]
        waiting = sum(row.waiting_ms or 0.0 for row in rows)
        moving = sum(row.moving_ms or 0.0 for row in rows)
        waits = [last - start for last, (start, _) in zip(arrived, mine, strict=True)]
        moves = [end - last for last, (_, end) in zip(arrived, mine, strict=True)]
        assert waiting == pytest.approx(sum(waits) / 1e3, abs=0.001)
        assert moving == pytest.approx(sum(moves) / 1e3, abs=0.001)


@on_trace("dlrm")
def test_the_rank_that_arrives_last_is_named() -> None:
    raw = raw_all_to_alls()
    last = [max(range(DLRM), key=lambda rank: raw[rank][k][0]) for k in range(5)]
    worst = dlrm().late[0]
    assert worst.rank == 7 and last.count(7) == worst.operations["all_to_all"] == 4
    assert worst.score > 0.9
    lost = [sorted(rank[k][0] for rank in raw) for k in range(5) if last[k] == 7]
    own = sum(starts[-1] - starts[-2] for starts in lost) / 1e3
    raw_worst = late_ranks(meetings(open_store(Path(SCRATCH.name) / "dlrm.fathom")).arrivals)[0]
    assert own <= raw_worst.cost_ms <= own + 0.01  # one all-reduce adds 9 µs
    straggler = next(f for f in dlrm().findings if f.id.startswith("communication-straggler"))
    assert worst.cost_ms == pytest.approx(straggler.gain_ms) and worst.cost_ms <= raw_worst.cost_ms
