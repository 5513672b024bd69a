"""First use of libraries and code, and copies that wait for unrecorded work, as entries of the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from fathom.analysis.replay import Replay, parse
from fathom.analysis.results import Examination
from tests.support.examined import imported, of_trace, on_trace
from tests.support.paths import TRACES
from tests.support.timelines import Timeline, examination_of, nanoseconds

MS = 1_000_000
shared = pytest.mark.skipif(not TRACES.is_dir(), reason="the shared traces are not here")


def milliseconds(examination: Examination) -> dict[str, float]:
    ledger: dict[str, float] = {}
    for row in examination.devices[0].ledger:
        ledger[row.entry] = ledger.get(row.entry, 0.0) + row.ms
    return ledger


@shared
@on_trace("norm")
def test_launches_that_load_code_are_no_latency() -> None:
    """Ten launches block for 1,090 ms in all, each before the first kernel of its name."""
    examination = of_trace("norm")
    ledger = milliseconds(examination)
    assert ledger["idle: first use"] == pytest.approx(1_116, abs=30)
    assert ledger["idle: launch latency"] < 5
    assert examination.findings == []
    assert examination.verdict is not None and examination.verdict.bound == "first use"


@shared
@on_trace("alexnet")
def test_starting_the_device_is_no_lack_of_memory() -> None:
    """29.9 s start the device; 6.5 s of cudaFree lie in the first call of a library that starts."""
    examination = of_trace("alexnet")
    ledger = milliseconds(examination)
    assert ledger["idle: first use"] > 29_927 + 6_008 + 3_055
    assert ledger["idle: allocator"] < 100
    kinds = {finding.id for finding in examination.findings}
    assert not kinds & {"host-allocator-retries", "host-empty-cache", "host-autotuning", "host-cuda-malloc"}
    after = Replay(imported("alexnet")).predict([parse("first-use=0")])
    assert after.predicted_ms == pytest.approx(43_425 - ledger["idle: first use"], rel=0.05)


def launches(*lengths: int, name: str = "gemm") -> Timeline:
    """A step of 40 ms with one launch per length; each kernel begins when its call returns."""
    timeline, at = Timeline(), 0
    timeline.step(1, 40 * MS)
    timeline.op("aten::first", 0, 1)
    for number, length in enumerate(lengths, 1):
        timeline.call("cudaLaunchKernel", at + MS, at + MS + length, correlation=number)
        timeline.kernel(at + MS + length, at + MS + length + 10, None, name=name, correlation=number)
        at += 2 * MS + length
    return timeline


def first_use(path: Path, timeline: Timeline) -> int:
    (device,) = examination_of(path / "s.fathom", timeline).devices
    return nanoseconds(device).get("idle: first use", 0)


def test_only_the_first_launch_of_a_kernel_loads_it(tmp_path: Path) -> None:
    assert first_use(tmp_path, launches(5 * MS, 10_000, 10_000)) == 5 * MS


@pytest.mark.parametrize("lengths", [(5 * MS, 4 * MS, 5 * MS), (10_000, 5 * MS), (900_000, 10_000)])
def test_launches_that_are_always_long_or_long_later_load_nothing(
    tmp_path: Path, lengths: tuple[int, ...]
) -> None:
    assert first_use(tmp_path, launches(*lengths)) == 0


def test_a_growing_cache_belongs_to_the_start_and_a_later_one_does_not(tmp_path: Path) -> None:
    timeline = launches(10_000)
    timeline.call("cudaStreamCreateWithFlags", 10 * MS, 12 * MS)
    timeline.call("cudaMalloc", 13 * MS, 14 * MS)
    timeline.call("cudaFree", 15 * MS, 16 * MS)
    timeline.call("cudaMalloc", 17 * MS, 19 * MS)
    (device,) = examination_of(tmp_path / "s.fathom", timeline).devices
    ledger = nanoseconds(device)
    assert ledger["idle: first use"] == 3 * MS and ledger["idle: allocator"] == 3 * MS


@pytest.mark.parametrize("api", ["cudaMemcpyAsync", "hipMemcpyWithStream"])
def test_an_open_copy_waits_for_work_that_was_not_recorded(tmp_path: Path, api: str) -> None:
    """A copy begins within microseconds unless its stream works; 30 ms of work are missing here."""
    timeline = launches(10_000)
    timeline.call(api, 5 * MS, 36 * MS, correlation=9)
    timeline.kernel(35 * MS, 35 * MS + 500, None, name="Memcpy DtoH", kind="copy", correlation=9)
    (device,) = examination_of(tmp_path / "s.fathom", timeline).devices
    ledger = nanoseconds(device)
    assert ledger["idle: unrecorded device work"] == 30 * MS and "idle: launch latency" in ledger
