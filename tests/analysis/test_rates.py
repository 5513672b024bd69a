"""Rates can be true: over the pieces' own durations, each byte once, none above its ceiling in silence."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from fathom.analysis.clean import Profiled, clean_entries
from fathom.analysis.results import Device, Examination, LedgerRow
from fathom.analysis.roofline import BEYOND, PARTS, check_rates
from fathom.diagnosis import examine
from fathom.machine.datasheet import find
from fathom.machine.limits import Limits
from fathom.report import print_report
from fathom.sounding import open_store
from tests.analysis.test_peers import REDUCE, STEP
from tests.support.examined import ARCHIVES, imported, of_archive, of_trace, on_trace, on_traces
from tests.support.paths import EXAMPLES, REPORTS, TRACES
from tests.support.report_samples import gpu
from tests.support.timelines import Timeline, examination_of

KEPT = sorted(REPORTS.glob("*.json"))
SOUNDINGS = sorted(EXAMPLES.glob("*.zip"))
IMPORTED = ("diff-control", "diff-test", "h100-qwen-0.5b", "kineto-resnet-w0", "mi300-resnet")
LIMITS = Limits(arithmetic={"matmul.bf16": 1e15}, memory=4e12)
given_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the shared traces are not here")


def text(examination: Examination) -> str:
    out = StringIO()
    print_report(examination, Console(file=out, width=120, no_color=True), top=None)
    return out.getvalue()


def silent(device: Device) -> list[str]:
    """Entries that pass a ceiling, measured or of the datasheet, and do not say so."""
    checked = [msgspec.structs.replace(entry, problem="") for entry in device.ledger]
    for entry in checked:
        entry.own_ms = entry.ms if entry.own_ms is None else entry.own_ms
    measured = any(entry.bound for entry in checked)
    check_rates(checked, LIMITS if measured else None, find({"name": device.name}))
    pairs = zip(checked, device.ledger, strict=True)
    return [
        f"{was.entry} {was.detail}: {now.problem}" for now, was in pairs if now.problem and not was.problem
    ]


def speaks_up(examination: Examination) -> None:
    for device in examination.devices:
        assert not silent(device)
    if examination.devices and any(entry.problem for entry in examination.devices[0].ledger):
        assert "above its ceiling" in text(examination)


@pytest.mark.parametrize("path", SOUNDINGS, ids=lambda path: path.name.split(".")[0])
def test_kept_soundings_print_no_rate_above_its_ceiling_in_silence(path: Path) -> None:
    speaks_up(examine(open_store(path)))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_reports_print_no_rate_above_its_ceiling_in_silence(path: Path) -> None:
    speaks_up(msgspec.json.decode(path.read_bytes(), type=Examination))


@pytest.mark.parametrize("archive", ARCHIVES)
def test_recordings_of_faults_name_every_rate_above_its_ceiling(archive: Path) -> None:
    for name, result in of_archive(archive).items():
        for device in result.devices:
            assert not silent(device), name


@given_traces
@pytest.mark.parametrize("name", on_traces(IMPORTED))
def test_imported_traces_print_no_rate_above_its_ceiling_in_silence(name: str) -> None:
    speaks_up(of_trace(name))


@given_traces
@pytest.mark.parametrize("name", on_traces(IMPORTED))
def test_the_rate_of_a_copy_is_its_bytes_over_how_long_copies_ran(name: str) -> None:
    """By the raw rows: bytes and durations of the copies that lie inside the used windows, hidden or not."""
    store = imported(name)
    (device,) = of_trace(name).devices
    copies = store.table("kernels").filter(kind="copy", phase="timeline").collect()
    compared = 0
    for entry in device.ledger:
        if entry.entry != "copy" or not entry.bytes_per_s or not entry.detail.startswith("HtoD"):
            continue
        ran, moved = 0.0, 0.0
        for row in copies.filter(direction=entry.detail).iter_rows(named=True):
            for window in (w for w in device.windows if w.used):
                part = min(row["end_ns"], window.end_ns) - max(row["start_ns"], window.start_ns)
                if part > 0:
                    ran += part
                    moved += row["bytes"] * part / (row["end_ns"] - row["start_ns"])
        assert entry.bytes_per_s == pytest.approx(moved / ran * 1e9, rel=1e-6)
        compared += 1
    assert compared or name == "mi300-resnet" or name == "h100-qwen-0.5b"


@given_traces
@on_trace("diff-control")
def test_a_copy_that_compute_hides_is_no_faster_for_it() -> None:
    (device,) = of_trace("diff-control").devices
    copy = next(entry for entry in device.ledger if entry.detail == "HtoD pinned")
    assert copy.own_ms > 3 * copy.ms  # most of it is hidden
    assert copy.bytes_per_s == pytest.approx(8.4e9, rel=0.01)
    assert "26.5" not in next(line for line in text(of_trace("diff-control")).splitlines() if "HtoD" in line)


def collective(to: Timeline, number: int, start: int, end: int) -> None:
    """A collective of 4 MB among two ranks, with its message."""
    values = json.dumps(["allreduce", "Float", "1000000", "1000000", "2"])
    called = 10 * number
    to.add("ops", id=number, parent=None, name="record_param_comms", thread=100, kind="op",
           start_ns=called, end_ns=called + 5, values=values)  # fmt: skip
    to.add("launches", api="cudaLaunchKernelExC", thread=100, correlation=number, op=number,
           start_ns=called + 1, end_ns=called + 2)  # fmt: skip
    to.kernel(start, end, None, name=REDUCE, kind="collective", stream=20, correlation=number)


def test_the_bytes_of_a_collective_count_once(tmp_path: Path) -> None:
    """Of two calls of one family the first meets its peer; the peer's launch of the second was lost."""
    early, late = Timeline(rank=0), Timeline(rank=1)
    for timeline in (early, late):
        timeline.steps(0, STEP)
        timeline.kernel(STEP - 1000, STEP, 500, correlation=900)
        collective(timeline, 1, 6000 if timeline is late else 1000, 9000)
        collective(timeline, 2, 20_000, 24_000)
    late.tables["launches"].pop()
    (entries, _) = (d.ledger for d in examination_of(tmp_path / "s", early, late).devices)
    moved = {entry.entry: entry.bytes for entry in entries if entry.detail == REDUCE}
    assert moved == {"moving bytes": 4e6, "communication": 4e6, "waiting for peers": None}
    rates = {entry.entry: entry.bytes_per_s for entry in entries if entry.bytes}
    assert rates == pytest.approx({"moving bytes": 4e6 / 3e-6, "communication": 4e6 / 4e-6})


def test_a_compiled_kernel_that_cannot_have_read_its_arguments_has_no_rate() -> None:
    entry = LedgerRow("compute", "triton_red_fused__log_softmax_9 1x1x1·512x1x1", 0.01, at_ceiling_ms=0.138)
    entry.own_ms, entry.bound, entry.bytes, entry.bytes_per_s = 0.01, "hbm", 6e8, 6e13
    check_rates([entry], LIMITS, None)
    assert (entry.bytes, entry.bytes_per_s, entry.at_ceiling_ms, entry.problem) == (None, None, None, "")
    assert entry.abstained == entry.unbounded == PARTS


def test_links_are_bounded_by_the_datasheet_where_nothing_was_measured() -> None:
    entry = LedgerRow("communication", "nccl", 0.04, bytes=1.1e8, bytes_per_s=2.885e12, own_ms=0.04)
    check_rates([entry], None, find({"name": "NVIDIA H200"}))
    assert entry.problem == "641 % of the datasheet's link"
    just = LedgerRow(
        "communication", "nccl", 0.04, bytes=1.1e8, bytes_per_s=4.5e11 * BEYOND * 0.99, own_ms=0.04
    )
    check_rates([just], None, find({"name": "NVIDIA H200"}))
    assert not just.problem


def test_the_mark_stands_beside_the_figure_and_names_why() -> None:
    entry = LedgerRow("compute", "mul", 4.0, own_ms=4.0, at_ceiling_ms=5.0, bound="hbm", bytes_per_s=5.2e12)
    check_rates([entry], LIMITS, None)
    device = Device(0, "cuda:0", [], 4.0, [entry], None, at_ceiling_ms=4.0, at_ceiling_known=1.0)
    page = text(gpu(devices=[device]))
    assert "!125.0" in page and "mul at 125 % of the measured ceiling (hbm)" in page


@pytest.mark.parametrize("step_ms", [6.0, 10.0, 14.0])
def test_rates_of_ops_are_of_the_time_in_the_clean_step(step_ms: float) -> None:
    """All profiled steps have 2 ms of `mm`, those near the clean step 3 ms."""
    key = ("ops", "aten::mm")
    known = LedgerRow(
        *key, 2.0, count=1.0, flops=4e9, bytes=2e6, flops_per_s=2e12, bytes_per_s=1e9, own_ms=2.0
    )
    python = LedgerRow("idle: python", "", 7.0)
    profiled = Profiled([known, python], {key: 3.0, ("idle: python", ""): 7.0}, {key: 1.0})
    result = {row.entry: row for row in clean_entries(profiled, {}, step_ms)}
    op = result["ops"]
    assert sum(row.ms for row in result.values()) == pytest.approx(step_ms)
    assert op.flops / op.flops_per_s == pytest.approx(op.ms / 1e3) == pytest.approx(op.bytes / op.bytes_per_s)
    assert op.inferred == (step_ms < 10) and op.own_ms == pytest.approx(op.ms)


def test_an_inferred_time_proves_no_impossible_rate() -> None:
    entries = [
        LedgerRow(
            "ops",
            "aten::mul",
            0.1,
            own_ms=0.1,
            at_ceiling_ms=1.0,
            bound="hbm",
            inferred=inferred,
            bytes_per_s=4e13,
        )
        for inferred in (False, True)
    ]
    check_rates(entries, LIMITS, None)
    assert entries[0].problem and not entries[1].problem
    assert entries[0].bytes_per_s and entries[1].bytes_per_s is None
