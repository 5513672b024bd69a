"""Traces that others recorded: what their raw events show is what the examination says."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fathom.analysis.replay import Replay, parse
from fathom.analysis.results import Examination
from fathom.diagnosis.signals.eager import fusible
from fathom.sounding import import_traces
from fathom.sounding.kineto import read_trace
from tests.support.examined import imported, of_trace, on_trace
from tests.support.findings_read import recorded
from tests.support.paths import TRACES
from tests.support.timelines import Timeline, examination_of

shared = pytest.mark.skipif(not TRACES.is_dir(), reason="the shared traces are not here")


def ids(examination: Examination) -> list[str]:
    return [finding.id for finding in examination.findings]


@shared
@on_trace("param-linear")
def test_threads_that_take_turns_do_not_contend() -> None:
    """Main and autograd thread alternate; the other one runs hundreds of ops in each pause."""
    examination = of_trace("param-linear")
    assert ids(examination)[0] == "host-launch-bound"
    assert "host-thread-contention" not in ids(examination)


@shared
@on_trace("kineto-resnet-w4")
def test_tf32_is_not_recommended_to_a_chip_without_it() -> None:
    """The trace describes no device, but its 442 kernels of volta_* and none of a later chip show a V100."""
    examination = of_trace("kineto-resnet-w4")
    assert "kernels-tf32-off" not in ids(examination)
    mixed = next(finding for finding in examination.findings if finding.id == "kernels-no-mixed-precision")
    assert mixed.action.startswith("Run the model in float16") and "bfloat16)" not in mixed.remedy
    assert examination.verdict is not None and "bfloat16" not in examination.verdict.action


@shared
@on_trace("b200-eager")
def test_python_stacks_of_a_trace_name_functions_and_the_cost_of_tracing() -> None:
    examination = of_trace("b200-eager")
    rows = [row for row in examination.devices[0].ledger if row.entry == "idle: python"]
    named = [row for row in rows if row.detail.endswith(")")]
    assert {"forward (gpt_oss.py:130)", "forward (layer.py:290)"} <= {row.detail for row in named}
    assert sum(row.ms for row in rows) == pytest.approx(17.87, abs=0.05)
    assert sum(row.ms for row in named) > 0.5 * sum(row.ms for row in rows)
    why = next(absence.why for absence in examination.abstained if absence.what == "host times")
    assert "15,230 calls per step" in why


@shared
@on_trace("h100-qwen-0.5b")
def test_datasheet_peaks_stand_in_for_ceilings_and_predict_no_rule() -> None:
    examination = of_trace("h100-qwen-0.5b")
    (device,) = examination.devices
    assert device.ceilings == "datasheet" and device.utilisation is not None
    assert device.utilisation.mfu is None and device.utilisation.mfu_datasheet is not None
    assert {lead.ceiling for lead in examination.leads} == {"datasheet"}
    product = max(device.ledger, key=lambda row: row.product_flops)
    assert product.unit == "matmul.bf16" and product.at_ceiling_ms is not None
    assert product.at_ceiling_ms >= product.product_flops / 989.4e12 * 1e3 * 0.99
    skipped = {absence.what for absence in examination.abstained}
    assert "finding kernels-tensor-cores-idle" in skipped
    assert sum(part.ms for part in examination.account) == pytest.approx(device.total_ms)


@shared
@pytest.mark.parametrize(("name", "day"), [("alexnet", "2023-09-27"), ("kineto-resnet-w4", "2021-01-11")])
def test_an_imported_trace_keeps_its_own_date(name: str, day: str) -> None:
    created = imported(name).manifest.created_ns
    assert datetime.fromtimestamp(created / 1e9, UTC).date().isoformat() == day


def test_a_trace_without_a_date_has_none(tmp_path: Path) -> None:
    assert import_traces([trace(tmp_path, 0, [0])], tmp_path / "s.fathom").manifest.created_ns == 0


@shared
@on_trace("kineto-autograd-w0")
def test_input_is_found_although_backward_launches_most() -> None:
    examination = of_trace("kineto-autograd-w0")
    ledger = {row.entry: row.ms for row in examination.devices[0].ledger}
    assert ledger["idle: input"] == pytest.approx(40.7, abs=0.1)
    assert ids(examination)[0] == "input-too-few-workers"
    prediction = Replay(imported("kineto-autograd-w0")).predict([parse("input=0")])
    assert prediction.recorded_ms is not None and prediction.predicted_ms is not None
    assert prediction.recorded_ms - prediction.predicted_ms == pytest.approx(40.7, rel=0.05)


@shared
@on_trace("mi250-minitoy")
def test_an_empty_last_step_is_left_out() -> None:
    examination = of_trace("mi250-minitoy")
    assert examination.integrity.ok
    assert examination.step.timeline_ms == pytest.approx(9.3, abs=0.05)
    assert [window.used for window in examination.devices[0].windows] == [True, False]


def step(timeline: Timeline, start: int, kernels: int, source: str = "profiler") -> None:
    timeline.step(start, start + 100_000, source=source)
    for k in range(kernels):
        begin = start + 1000 + 4000 * k
        timeline.kernel(begin, begin + 3000, begin - 500)


@pytest.mark.parametrize(
    ("last", "source", "used"), [(2, "profiler", 2), (10, "profiler", 3), (2, "mark", 3)]
)
def test_a_last_step_that_the_trace_cuts_is_left_out(
    tmp_path: Path, last: int, source: str, used: int
) -> None:
    timeline = Timeline()
    for place, kernels in enumerate((20, 20, last)):
        step(timeline, 100_000 * place, kernels, source)
    windows = examination_of(tmp_path / "s", timeline).devices[0].windows
    assert sum(window.used for window in windows) == used
    if used == 2:
        assert windows[-1].why_not == "the trace ends before this step's work"


def trace(tmp_path: Path, device: int, listed: list[int], overlap_us: float = 0.0) -> Path:
    """Two kernels on a device, with the properties of the `listed` devices."""

    def kernel(start: float) -> dict[str, Any]:
        args = {"device": device, "stream": 7, "correlation": int(start)}
        return {
            "ph": "X",
            "cat": "kernel",
            "name": "k",
            "pid": 0,
            "tid": 7,
            "ts": start,
            "dur": 100.0,
            "args": args,
        }

    properties = [{"id": number, "name": "AMD Instinct MI300X", "computeMajor": 9} for number in listed]

    def call(start: float) -> dict[str, Any]:
        args = {"correlation": int(start)}
        named = {"cat": "hip_runtime", "name": "hipLaunchKernel", "pid": 1, "tid": 1}
        return {"ph": "X", **named, "ts": start - 500, "dur": 2.0, "args": args}

    starts = (1000.0, 1100.0 - overlap_us)
    events = [make(start) for make in (kernel, call) for start in starts]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(
        gzip.compress(json.dumps({"deviceProperties": properties, "traceEvents": events}).encode())
    )
    return path


def test_the_only_device_keeps_its_name_if_ids_differ(tmp_path: Path) -> None:
    store = import_traces([trace(tmp_path, 9, [0])], tmp_path / "s.fathom")
    assert store.manifest.ranks[0].devices == {9: "AMD Instinct MI300X"}
    assert [(gpu["index"], gpu["name"]) for gpu in store.machine["gpus"]] == [(9, "AMD Instinct MI300X")]


def test_of_several_devices_none_is_guessed(tmp_path: Path) -> None:
    store = import_traces([trace(tmp_path, 9, [0, 1])], tmp_path / "s.fathom")
    assert store.manifest.ranks[0].devices == {9: ""}


@pytest.mark.parametrize(("overlap_us", "damaged"), [(0.2, False), (20.0, True)])
def test_overlaps_below_a_microsecond_are_rounding(tmp_path: Path, overlap_us: float, damaged: bool) -> None:
    problems = read_trace(trace(tmp_path, 0, [0], overlap_us)).problems
    assert ("stream-overlap" in [problem.what for problem in problems]) == damaged


@shared
@on_trace("diff-control")
def test_compiling_leaves_the_optimizer_of_a_trace_as_it_is() -> None:
    """A trace has ops in all its steps, and no steps of an attribution phase."""
    events = json.loads(gzip.decompress((TRACES / "diff-control.json.gz").read_bytes()))["traceEvents"]
    host = [event for event in events if event.get("cat") in ("user_annotation", "cpu_op")]
    steps, optimizer = (
        sum(event["dur"] for event in host if event["name"].startswith(name))
        for name in ("ProfilerStep", "Optimizer.")
    )
    assert fusible(recorded(imported("diff-control").path)).optimizer == pytest.approx(
        optimizer / steps, rel=0.02
    )
