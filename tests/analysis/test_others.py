"""Whether other programs on the host lengthen the steps."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import fathom
from fathom.report.heading import step_lines
from fathom.sounding import Manifest, Rank, Writer, conform

MS, START = 1_000_000, 10**18


@pytest.mark.parametrize(
    ("busy", "program", "others"),
    [
        (99.0, 25.0, 0.74),  # hardly a processor is free
        (60.0, 20.0, None),  # others leave enough
        (97.0, 92.0, None),  # the program itself takes them
        (None, None, None),  # no sensors
    ],
)
def test_others_matter_where_hardly_a_processor_is_free(
    tmp_path: Path, busy: float | None, program: float | None, others: float | None
) -> None:
    writer = Writer(tmp_path / "a.fathom")
    times = [START + k * 10 * MS for k in range(40)]
    steps = {"step": range(40), "kind": "train", "source": "mark", "thread": 1, "mark_ns": times}
    ends = [time + 10 * MS for time in times]
    writer.write(
        0, "steps", conform("steps", pl.DataFrame({**steps, "end_ns": ends, "phase": "clean", "burst": 1}))
    )
    if busy is not None:
        sensors = {"time_ns": times, "device": -1, "busy_percent": busy, "program_percent": program}
        writer.write(0, "telemetry", conform("telemetry", pl.DataFrame(sensors)))
    manifest = Manifest(name="a", created_ns=START, ranks=[Rank(rank=0)])
    examination = fathom.open(writer.finish(manifest, {}).path).examine()
    assert examination.step.others == (None if others is None else pytest.approx(others))
    shown = " ".join(line.plain for line in step_lines(examination, 100))
    assert ("other programs used 74 % of the processors" in shown) == (others is not None)
