"""Findings of whole soundings: made by hand, synthetic devices, real traces, the kept example."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

import fathom
from fathom.diagnosis import examine
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.signals import Signals
from fathom.diagnosis.signals.recorded import OpPaths
from fathom.sounding import Manifest, Rank, Writer, conform
from faults.labels import builders
from tests.support.examined import of_trace, on_traces
from tests.support.findings_read import read, recorded
from tests.support.paths import EXAMPLES, TRACES
from tests.support.running import run_fathom
from tests.support.small_sounding import MS, START, make

EXAMPLE = EXAMPLES / "train_gpt-h200.fathom.zip"
REAL = sorted(path.name.removesuffix(".json.gz") for path in TRACES.glob("*.json.gz"))


def check(examination) -> None:
    """Check the invariants of a sounding's findings."""
    ledgers = (
        {(e.entry, e.detail): e.ms for e in examination.devices[0].ledger} if examination.devices else {}
    )
    taken: dict[tuple[str, str], float] = {}
    for finding in examination.findings:
        assert finding.id in kinds()
        assert 0 <= finding.confidence <= 1
        if finding.gain_ms is not None:
            assert 0 <= finding.low_ms <= finding.gain_ms <= finding.high_ms
        for claim in finding.claims:
            key = (claim.entry, claim.detail)
            taken[key] = taken.get(key, 0.0) + claim.ms
    assert all(ms <= ledgers[row] + 1e-6 for row, ms in taken.items())
    gains = [item.gain_ms for item in examination.findings if item.gain_ms is not None]
    assert gains == sorted(gains, reverse=True)
    assert not [absence for absence in examination.abstained if "its rule failed" in absence.why]


def launching(folder: Path, kernels: int = 40, item: bool = False):
    """Three steps of 10 ms of kernels of 5 µs, launched every 200 µs, perhaps with a value that is read."""
    writer, rows, calls, ops = Writer(folder), [], [], []
    for step in range(3):
        for number in range(kernels):
            at = START + step * 10 * MS + number * 200_000
            ident = step * kernels + number
            ops.append(
                {"id": ident, "kind": "op", "name": "aten::add", "start_ns": at, "end_ns": at + 190_000}
            )
            calls.append(
                {
                    "correlation": ident,
                    "op": ident,
                    "api": "cudaLaunchKernel",
                    "start_ns": at + 150_000,
                    "end_ns": at + 180_000,
                }
            )
            rows.append(
                {
                    "kind": "compute",
                    "name": "add",
                    "family": "add",
                    "correlation": ident,
                    "start_ns": at + 170_000,
                    "end_ns": at + 175_000,
                }
            )
    common = {"phase": "timeline", "burst": 1}
    steps = [
        {
            "step": k,
            "kind": "train",
            "source": "mark",
            "thread": 1,
            "mark_ns": START + k * 10 * MS,
            "end_ns": START + (k + 1) * 10 * MS,
        }
        for k in range(3)
    ]
    tables = {
        "steps": (steps, {}),
        "ops": (ops, {"thread": 1}),
        "launches": (calls, {"thread": 1}),
        "kernels": (rows, {"device": 0, "stream": 7}),
    }
    for name, (table, more) in tables.items():
        writer.write(0, name, conform(name, pl.DataFrame([{**row, **more, **common} for row in table])))
    manifest = Manifest(
        name="made",
        created_ns=START,
        command=["python", "train.py"],
        ranks=[Rank(rank=0, world=1, devices={0: "a device"})],
    )
    return writer.finish(manifest, {"host": {"hostname": "here"}})


def test_short_kernels_with_long_gaps_are_launch_bound(tmp_path):
    examination = examine(launching(tmp_path / "made.fathom"))
    check(examination)
    first = examination.findings[0]
    assert first.id == "host-launch-bound"
    assert first.gain_ms > 0.5 * examination.step.timeline_ms


def test_work_of_a_family_sums_to_its_row(tmp_path):
    launching(tmp_path / "made.fathom")
    given = read(tmp_path / "made.fathom")
    assert {(item.family, item.ops, item.count) for item in given["kernels.work"]} == {
        ("add", ("aten::add",), 40.0)
    }
    assert given["kernels.median_us"] == 5.0
    ledger = {row.detail: row.ms for row in given["step.ledger"] if row.entry == "compute"}
    assert ledger == pytest.approx({"add": sum(item.ms for item in given["kernels.work"])})


def test_the_path_of_an_op_is_the_same_in_every_step_and_leaves_out_frames():
    names = [
        "ProfilerStep#7",
        "train.py(3): step",
        "aten::linear",
        "aten::addmm",
        "ProfilerStep#8",
        "aten::linear",
    ]
    table = pl.DataFrame(
        {
            "name": names,
            "kind": ["annotation", "python", "op", "op", "annotation", "op"],
            "source": [None, "train.py(3): step", None, None, None, None],
            "ran": pl.Series([None] * 6, dtype=pl.String),
            "module": pl.Series([None] * 6, dtype=pl.String),
        }
    )
    paths = OpPaths(table, np.array([-1, 0, 1, 2, -1, 4]))
    assert paths.names(3) == ("aten::linear", "aten::addmm")
    assert paths.names(2) == paths.names(5) == ("aten::linear",)
    assert paths.names(-1) == ()
    assert paths.mark("source", 3) == "train.py(3): step"
    assert paths.mark("source", 5) is None
    assert paths.mark("region", 3) is None


@pytest.mark.parametrize(("mean", "expected"), [(30.0, 30.0), (2.0, 9.0)])
def test_a_mean_shorter_than_what_the_device_computes_is_none(tmp_path, mean, expected):
    launching(tmp_path / "made.fathom")
    given = recorded(tmp_path / "made.fathom")
    (device,) = given.account.devices
    device.ledger = [msgspec.structs.replace(device.ledger[0], entry="compute", ms=8.0)]
    given.step.clean_ms, given.step.clean_mean_ms = 9.0, mean
    assert Signals(None, given)["step.mean_ms"] == expected


def test_calls_between_the_mark_of_a_lone_step_and_its_window_are_that_steps(tmp_path):
    launching(tmp_path / "made.fathom")
    given = recorded(tmp_path / "made.fathom")
    windows = given.account.windows
    start = int(windows.starts[0])
    windows.start_leads = np.full(len(windows.starts), 1000)
    rows = pl.DataFrame({"start_ns": [start - 500, start - 5000, start + 1], "phase": ["timeline"] * 3})
    assert not given.ahead(rows).any(), "several steps in one burst"
    windows.bursts = np.arange(len(windows.bursts))
    windows.used = np.arange(len(windows.used)) == 0
    assert given.ahead(rows).to_list() == [True, False, False]


def test_signals_are_read_once(tmp_path):
    launching(tmp_path / "made.fathom")
    given = read(tmp_path / "made.fathom")
    assert given["kernels.work"] is given["kernels.work"]
    assert given.get("device.gpu").why == "the device is not in the recorded inventory of its machine"


def test_soundings_without_ops_and_without_anything_have_no_findings(tmp_path):
    check(examine(make(tmp_path / "small.fathom")))
    nothing = Writer(tmp_path / "empty.fathom").finish(Manifest(ranks=[Rank(rank=0)]))
    assert examine(nothing).findings == []
    assert examine(Writer(tmp_path / "none.fathom").finish(Manifest())).findings == []


def unwell(builder, form: str, folder: Path) -> list[str]:
    build = importlib.import_module(builder.module).build
    return [finding.id for finding in examine(build(form, 3).write(folder / f"{form}.fathom")).findings]


@pytest.mark.parametrize("builder", builders(), ids=lambda builder: builder.name)
def test_devices_that_are_unwell_are_found_out(builder, tmp_path):
    assert builder.fault.kind in unwell(builder, "faulty", tmp_path)
    assert not [kind for kind in unwell(builder, "mended", tmp_path) if kind.startswith("device-")]


def test_the_kept_example_has_sound_findings():
    check(fathom.open(EXAMPLE).examine())


@pytest.mark.skipif(not REAL, reason="the shared traces are not here")
@pytest.mark.parametrize(
    "name", on_traces(name for name in REAL if name.startswith(("b200", "h100-qwen", "ns-", "vllm")))
)
def test_real_traces_give_findings_without_an_error(name):
    check(of_trace(name))


def test_the_command_tells_all_and_the_report_the_first(tmp_path):
    launching(tmp_path / "made.fathom")
    done = run_fathom("findings", "made.fathom", cwd=tmp_path)
    assert done.returncode == 0
    for word in ("host-launch-bound", "saves", "CUDA graphs", "fathom what-if", "fathom lab run cuda-graph"):
        assert word in done.stdout
    document = json.loads(run_fathom("findings", "made.fathom", "--json", cwd=tmp_path).stdout)
    assert [(item["id"], item["technique"]) for item in document][:1] == [("host-launch-bound", "cuda-graph")]
    report = run_fathom("report", "made.fathom", cwd=tmp_path).stdout
    assert report.index("Kernels take less time to run than to launch") < report.index("where a step goes")
    assert "fathom explain host-launch-bound" in report
    assert "checks (lacked data" in report
    assert "finding numbers-odd-size" not in report


def test_a_sounding_that_is_not_there_is_one_sentence(tmp_path):
    done = run_fathom("findings", "nothing.fathom", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


@pytest.mark.parametrize(
    ("source", "tokens", "expected"),
    [
        ("mark", [100, 200, 900], 900.0),  # of the step whose shapes were recorded
        ("mark", [100, 200, None], 150.0),
        ("mark", [None, None, None], None),
        ("optimizer", [100, 200, 900], None),  # counted in a loader's batches, padding included
    ],
)
def test_only_tokens_that_the_program_reports_are_told(tmp_path, source, tokens, expected):
    steps = pl.DataFrame({"step": [0, 1, 2], "kind": "train", "source": source, "tokens": tokens})
    phases = pl.Series("phase", ["clean", "timeline", "attribution"])
    writer = Writer(tmp_path / "made.fathom")
    writer.write(0, "steps", conform("steps", steps.with_columns(phases)))
    writer.finish(Manifest(name="made", ranks=[Rank(rank=0)]), {})
    result = read(tmp_path / "made.fathom").get("input.told_tokens")
    assert result.value == expected
    assert expected is not None or "fathom.step(tokens=" in result.why
