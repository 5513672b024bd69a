"""`fathom.step()` is enough for a program without torch; its named regions have their own rows."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
import pytest

import fathom
from tests.report.test_report import text
from tests.support.running import run_fathom
from tests.support.timelines import Timeline, examination_of

pytestmark = pytest.mark.programs
MS = 1_000_000
SIMULATOR = """
import gc, sys, time
import fathom

def advance(cells):
    for i in range(len(cells)):
        cells[i] = (cells[i] * 1103515245 + 12345) % 2147483648

cells = list(range(30_000))
for step in range(60):
    with fathom.region("advance"):
        advance(cells)
    with fathom.region("load"):
        time.sleep(0.004)
    if step % 2:
        gc.collect()
    fathom.step(samples=30_000)
assert "torch" not in sys.modules
"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> fathom.Sounding:
    folder = tmp_path_factory.mktemp("plain")
    (folder / "sim.py").write_text(SIMULATOR)
    done = run_fathom("run", "-o", "sim.fathom", "--", sys.executable, "sim.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    return fathom.open(folder / "sim.fathom")


def test_steps_are_counted_by_the_call(simulated: fathom.Sounding) -> None:
    steps = simulated.table("steps").filter(pl.col("source") == "mark").collect()
    assert steps.height == 59 and simulated.manifest.ended == "finished"
    step = simulated.step
    assert step.clean_ms is not None and step.clean_ms > 4.0 and step.samples_per_s


def test_the_ledger_sums_and_has_collections_of_garbage(simulated: fathom.Sounding) -> None:
    (device,) = simulated.examine().devices
    entries = {entry.entry for entry in device.ledger}
    assert "idle: gc" in entries and not {"ops", "compute"} & entries
    used = [window for window in device.windows if window.used]
    assert used and device.total_ms == pytest.approx(
        sum(window.end_ns - window.start_ns for window in used) / len(used) / MS
    )


def test_regions_have_rows(simulated: fathom.Sounding) -> None:
    examination = simulated.examine()
    named = {region.name: region for region in examination.devices[0].regions}
    assert set(named) == {"advance", "load"}
    assert named["load"].ms >= 4.0 and named["advance"].count == pytest.approx(1.0)
    page = text(examination)
    assert (
        "regions of the program" in page and "idle" not in page.split("where a step goes")[1].split("\n")[1]
    )


def test_without_operators_python_time_is_not_a_pause(simulated: fathom.Sounding) -> None:
    for finding in simulated.findings:
        assert not any("between ops" in line.text for line in finding.evidence)


def test_a_program_that_is_not_recorded_runs_as_ever(tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "sim.py").write_text(SIMULATOR)
    done = subprocess.run([sys.executable, "sim.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and not list(tmp_path.glob("*.fathom"))


def test_nested_regions_do_not_share_exclusive_time(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.steps(*[k * 10 * MS for k in range(4)])
    for k in range(3):
        begin = k * 10 * MS
        timeline.op("outer", begin + MS, begin + 9 * MS, kind="annotation")
        timeline.op("inner", begin + 2 * MS, begin + 5 * MS, kind="annotation")
        timeline.op("Optimizer.step#SGD.step", begin + 6 * MS, begin + 7 * MS, kind="annotation")
        timeline.kernel(begin + 4 * MS, begin + 6 * MS, begin + 3 * MS)
    (device,) = examination_of(tmp_path / "s", timeline).devices
    rows = {
        region.name: (region.ms, region.own_ms, region.count, region.device_ms) for region in device.regions
    }
    assert rows["outer"] == pytest.approx((8.0, 5.0, 1.0, 2.0), rel=0.3)
    assert rows["inner"] == pytest.approx((3.0, 3.0, 1.0, 2.0), rel=0.3)
    assert set(rows) == {"outer", "inner"}


EVALUATING = """
import time, fathom

def evaluate():
    for _ in range(20):
        time.sleep(0.01)  # even on a busy machine, many usual steps

for step in range(360):  # the timeline takes about 200 of them
    if step % 28 == 0:
        evaluate()
    time.sleep(0.008)
    fathom.step()
"""


def test_rare_long_steps_are_reported_with_the_call_that_takes_their_time(tmp_path: Path) -> None:
    (tmp_path / "evaluating.py").write_text(EVALUATING)
    done = run_fathom("run", "-o", "out.fathom", "--", sys.executable, "evaluating.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (long_step,) = fathom.open(tmp_path / "out.fathom").examine().long_steps
    assert long_step.n >= 3 and long_step.places[0].function == "evaluate", long_step
    assert "outliers" in done.stderr and "evaluate (evaluating.py:6)" in done.stderr


FAILING = """
import llama_cpp.server.app
raise {raised}
"""
FAILURES = {
    "ModuleNotFoundError('No module named fastapi')": "ModuleNotFoundError: No module named fastapi",
    "RuntimeError('the answer was 4711')": "RuntimeError",
}


@pytest.mark.parametrize("raised", FAILURES)
def test_the_report_of_a_server_that_fails_says_why(tmp_path: Path, raised: str) -> None:
    """Messages of most exceptions are left to the program's own output: they may contain secrets."""
    (tmp_path / "llama_cpp" / "server").mkdir(parents=True)
    (tmp_path / "llama_cpp" / "server" / "app.py").touch()
    (tmp_path / "serve.py").write_text(FAILING.format(raised=raised))
    command = (sys.executable, "serve.py")
    done = run_fathom(
        "run", "--no-measure", "--depth", "surface", "-o", "s.fathom", "--", *command, cwd=tmp_path
    )
    assert done.returncode == 1
    assert f"the program ended with {FAILURES[raised]} (exit status 1)" in done.stderr
    assert "failed before its first step" in done.stderr
    assert not any(
        b"4711" in file.read_bytes() for file in (tmp_path / "s.fathom").rglob("*") if file.is_file()
    )
