"""The lines of ops are those that ran: Kineto's own frames know only where functions begin."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from fathom.sounding.kineto import read_trace
from fathom.sounding.raw.traces import with_lines
from fathom.sounding.schema import conform

pytest.importorskip("torch")

PROGRAM = """
import sys
import torch
from fathom.probe.kineto import Kineto

kineto = Kineto()
model = torch.nn.Linear(8, 8)

def inner(x):
    y = torch.relu(x)
    return model(
        y
    )

def train():
    kineto.prepare(shapes=True, stacks=True)
    kineto.enable()
    x = torch.ones(4, 8)
    a = inner(x)
    a = inner(a)
    loss = a.sum()
    loss.backward()
    kineto.disable()

train()
kineto.save(sys.argv[1])
"""
LINES = {  # of the program above, counted from 1
    "aten::ones": {"train": 18},
    "aten::relu": {"inner": 10},
    "aten::linear": {"inner": 11},
    "aten::sum": {"train": 21},
    "SumBackward0": {"train": 22},
}


@pytest.mark.programs
def test_ops_carry_the_line_that_ran(tmp_path: Path) -> None:
    script, trace = tmp_path / "program.py", tmp_path / "trace-1-1-attribution.json"
    script.write_text(PROGRAM)
    subprocess.run([sys.executable, str(script), str(trace)], check=True, stderr=subprocess.DEVNULL)
    ops = read_trace(trace, phase="attribution", burst=1).tables["ops"]
    mended = with_lines(ops, trace)
    assert mended.drop("line").equals(ops.drop("line"))
    assert mended.schema == ops.schema
    for op, expected in LINES.items():
        rows = mended.filter(pl.col("name") == op)
        lines = {
            (source.rpartition(" ")[2], line) for source, line in rows.select("source", "line").iter_rows()
        }
        assert lines >= set(expected.items()), op
    assert not ops["source"].str.contains("program.py(18): train", literal=True).any()


def test_a_trace_without_lines_stays_as_it_is(tmp_path: Path) -> None:
    ops = conform("ops", pl.DataFrame({"source": ["a.py(1): f"], "start_ns": [5]}))
    assert with_lines(ops, tmp_path / "trace-1-1-attribution.json.gz").equals(ops)
    (tmp_path / "lines-trace-1-1-attribution.json").write_text("[[")
    assert with_lines(ops, tmp_path / "trace-1-1-attribution.json").equals(ops)


def test_the_line_is_the_last_that_this_function_had_reached(tmp_path: Path) -> None:

    rows = [
        [10, "a.py", "f", 1],
        [20, "a.py", "f", 7],
        [30, "a.py", "g", 3],
        [40, "a.py", "f", 1],
        [60, "b.py", "f", 9],
    ]
    (tmp_path / "lines-trace.json").write_text(json.dumps(rows))
    sources = ["a.py(1): f", "a.py(1): f", "a.py(2): g", "a.py(1): f", None, "c.py(4): f"]
    ops = conform("ops", pl.DataFrame({"source": sources, "start_ns": [15, 25, 35, 70, 70, 70]}))
    marked = with_lines(ops, tmp_path / "trace.json.gz")
    assert marked["line"].to_list() == [1, 7, 3, 1, None, None]
    assert marked.drop("line").equals(ops.drop("line"))
