"""Memory that bursts with counters add to a program, from raw records."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import COST

sys.path.insert(0, str(COST))
import counters_memory
from counters_memory import HOST

S, MB = 1_000_000_000, 1_000_000


def recorded(folder: Path, growth: float, burst_mb: int = 600) -> Path:
    """A trace for 5 s, then a burst each 2 s: half the time it is decoded. `growth`: MB/s between them."""
    raw = folder / "raw"
    raw.mkdir(parents=True)
    said: list[dict[str, Any]] = [{"t": "trace", "phase": "timeline", "stop_ns": 5 * S}]
    for at in range(6, 126, 2):
        said.append(
            {"t": "samples", "start_ns": [at * S, at * S], "stop_ns": [at * S, at * S], "decode_ns": S}
        )
        said.append({"t": "trace", "phase": "counters", "stop_ns": at * S})
    (raw / "proc-1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in said) + '{"t": "tor')
    rows = []
    for tick in range(1300):
        ns = tick * S // 10
        values = (
            2000
            + (ns > 5 * S) * (100 + growth * (ns - 5 * S) / S)
            + burst_mb * (ns > 6 * S and ns // S % 2 == 0)
        )
        rows.append({"device": HOST, "time_ns": ns, "memory_bytes": round(values * MB)})
        rows.append({"device": 0, "time_ns": ns, "memory_bytes": 9_000 * MB})
    (raw / "telemetry.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize("growth", [0.0, 0.5, 4.0])
def test_what_is_added_and_whether_it_grows(tmp_path: Path, growth: float) -> None:
    result = counters_memory.measured(recorded(tmp_path, growth))
    assert result["seconds"] == pytest.approx(120)
    assert result["before_bytes"] == 2000 * MB
    assert result["added_bytes"] == pytest.approx((700 + 120 * growth) * MB, rel=0.01)
    assert result["slope_bytes_per_s"] == pytest.approx(growth * MB, abs=0.03 * MB)


def test_a_recording_without_counters_is_told(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    with pytest.raises(SystemExit, match="no bursts with counters"):
        counters_memory.measured(tmp_path)
