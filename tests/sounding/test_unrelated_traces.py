"""Traces of one import: those of different jobs are refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fathom.errors import BadInputError
from fathom.sounding import import_traces

YEAR_US = 365 * 86_400 * 1_000_000
NOW_US = 1_700_000_000_000_000


def trace(path: Path, api: str = "cudaLaunchKernel", start_us: int = NOW_US) -> Path:
    """Write a trace of torch.profiler with three launches of a kernel."""
    events = []
    for step in range(3):
        ts, args = start_us + 100 * step, {"correlation": step + 1}
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": api, "pid": 1, "tid": 1, "ts": ts, "dur": 5,
             "args": args},
            {"ph": "X", "cat": "kernel", "name": "add", "pid": 0, "tid": 7, "ts": ts + 9, "dur": 50,
             "args": args | {"device": 0, "stream": 7}},
        ]  # fmt: skip
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def test_traces_of_gpus_of_two_vendors_are_refused(tmp_path: Path) -> None:
    files = [trace(tmp_path / "a.json"), trace(tmp_path / "b.json", "hipLaunchKernel")]
    with pytest.raises(BadInputError, match="GPUs of AMD, not of NVIDIA; import them separately") as error:
        import_traces(files, tmp_path / "out.fathom")
    assert all(str(file) in str(error.value) for file in files)
    assert not (tmp_path / "out.fathom").exists()


def test_traces_of_different_years_are_refused(tmp_path: Path) -> None:
    files = [trace(tmp_path / "a.json"), trace(tmp_path / "b.json", start_us=NOW_US - 2 * YEAR_US)]
    with pytest.raises(BadInputError, match="recorded 730 days apart; import them separately"):
        import_traces(files, tmp_path / "out.fathom")


@pytest.mark.parametrize("start_us", [NOW_US + 3_600_000_000, 5_000_000])
def test_traces_of_one_day_or_of_an_unknown_date_are_ranks_of_a_job(tmp_path: Path, start_us: int) -> None:
    files = [trace(tmp_path / "a.json"), trace(tmp_path / "b.json", start_us=start_us)]
    assert import_traces(files, tmp_path / "out.fathom").ranks == [0, 1]
