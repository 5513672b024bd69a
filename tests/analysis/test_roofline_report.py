"""The kept H200 sounding beside the ceilings that were published for its kind: `at ceiling` end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fathom
from fathom.machine.ceilings import Ceiling, to_records
from tests.support.paths import EXAMPLES
from tests.support.running import run_fathom

KEPT = EXAMPLES / "train_gpt-h200.fathom.zip"
SEEN = {  # measured on one H200, in B/s, FLOP/s and s
    "hbm.read": 4.42e12, "hbm.copy": 4.27e12, "hbm.write": 4.68e12, "l2.read": 9e12, "matmul.bf16": 783e12,
    "matmul.tf32": 360e12, "matmul.fp32": 51e12, "vector.fp32": 60e12, "copy.h2d.pinned": 55.6e9,
    "latency.graph_node": 1.2e-6,
}  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine file of an H200."""
    measured = [
        Ceiling(id=name, value=value, unit="", low=value, high=value, samples=1, device=0)
        for name, value in SEEN.items()
    ]
    file = tmp_path / "h200.json"
    gpus = [{"index": 0, "name": "NVIDIA H200", "l2_bytes": 60 << 20}]
    file.write_text(json.dumps({"fingerprint": "f", "gpus": gpus, "ceilings": to_records(measured)}))
    return file


def test_the_step_at_the_speed_of_light(machine: Path) -> None:
    device = fathom.open(KEPT, machine=machine).examine().devices[0]
    needs = [min(e.at_ceiling_ms, e.ms) for e in device.ledger if e.at_ceiling_ms is not None]
    assert device.at_ceiling_ms == pytest.approx(sum(needs))
    assert 0 < device.at_ceiling_ms < device.total_ms
    assert device.at_ceiling_known > 0.98
    # 6 N per token for the weights of a GPT in products, and attention on top: what papers call model FLOPs
    assert 0.05 < device.utilisation.mfu < 0.6
    assert device.utilisation.mfu == device.utilisation.hfu  # nothing is recomputed


def test_what_exceeds_its_ceiling_is_what_the_cache_still_held(machine: Path) -> None:
    """Nothing is clipped: only families whose inputs fit into L2 in part come out above 1, and just above."""
    device = fathom.open(KEPT, machine=machine).examine().devices[0]
    above = [e for e in device.ledger if e.at_ceiling_ms and e.at_ceiling_ms > e.ms]
    assert all(e.bound == "hbm" and e.bytes / e.count < 3 * (60 << 20) for e in above)
    assert all(e.at_ceiling_ms < 1.1 * e.ms for e in above)


def test_the_report_shows_ceilings_and_the_roofline(machine: Path) -> None:
    done = run_fathom("report", str(KEPT), "--machine", str(machine), "--roofline", cwd=machine.parent)
    assert done.returncode == 0, done.stderr
    assert "at ceiling" in done.stdout and "MFU" in done.stdout and "FLOP/B" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_without_ceilings_the_report_uses_the_datasheet_and_says_how_to_measure(tmp_path: Path) -> None:
    done = run_fathom("report", str(KEPT), cwd=tmp_path, FATHOM_HOME=str(tmp_path))
    assert "fathom machine measure" in done.stdout and "speed of light from the datasheet" in done.stdout
    assert "(vs. dense datasheet peak)" in done.stdout


@pytest.mark.parametrize("text", ["", "{}", '{"fingerprint": "f", "ceilings": [{"id": 3}]}'])
def test_a_bad_machine_file_is_refused(tmp_path: Path, text: str) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(text)
    done = run_fathom("report", str(KEPT), "--machine", str(bad), cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr and "machine file" in done.stderr
