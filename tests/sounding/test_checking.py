"""Tables, manifests and machine files that no recording leaves are refused in one sentence."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fathom
from fathom.errors import BadInputError, FathomError, NotASoundingError
from fathom.regular import decode, open_regular, read_regular
from fathom.sounding import TABLES, Writer, open_store
from fathom.sounding.checking import require_valid, scanned
from tests.support.paths import SOURCE
from tests.support.small_sounding import make

NUMBERS = [
    (table, column, kind)
    for table, columns in TABLES.items()
    for column, kind in columns.items()
    if kind.is_numeric()
]
OUTSIDE = [2**62, -(2**62), 2**63 - 1, -(2**63)]


def changed(folder: Path, name: str, change) -> Path:
    """A small sounding without checksums whose JSON file `name` was changed."""
    path = make(folder / "s.fathom").path
    for file, by in (("manifest.json", lambda d: d | {"checksums": {}}), (name, change)):
        content = json.loads((path / file).read_bytes())
        (path / file).write_text(json.dumps(by(content)))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(FathomError) as error:
        sounding = fathom.open(path)
        assert sounding.store.machine is not None
        for name in TABLES:
            sounding.store.table(name).collect()
    text = str(error.value)
    assert text.endswith(".") and "\n" not in text
    return text


@given(st.sampled_from(NUMBERS), st.sampled_from(OUTSIDE), st.integers(0, 5))
def test_numbers_beyond_their_range_are_refused(where, number, row):
    table, column, kind = where
    if kind.is_float():
        number = float("nan") if number > 0 else float("inf")
    elif kind == pl.Int32 and column not in ("device", "group"):
        return  # every value of these is possible
    elif kind == pl.Int32:
        number = 2**31 - 1 if number > 0 else -5
    if column in ("thread", "stream", "correlation", "throttle", "graph_node"):
        return
    values = [0] * 6
    values[row] = number
    with pytest.raises(NotASoundingError, match=f"column {column} has an impossible value"):
        frame = pl.DataFrame(
            {name: pl.Series(name, [None] * 6, kind) for name, kind in TABLES[table].items()}
        )
        frame = frame.with_columns(pl.Series(name, [0] * 6, kind) for _, name, kind in NUMBERS if _ == table)
        require_valid(frame.with_columns(pl.Series(column, values, kind)), table, Path("t.parquet"))


@given(st.sampled_from([(t, c) for t, columns in TABLES.items() for c in columns]))
def test_columns_of_another_type_are_refused(where):
    table, column = where
    other = pl.Int64 if TABLES[table][column] == pl.String else pl.String
    with pytest.raises(NotASoundingError, match=f"column {column} is {other}"):
        require_valid(pl.DataFrame(schema={**TABLES[table], column: other}), table, Path("t.parquet"))


@pytest.mark.parametrize("name", ["manifest.json", "machine.json", "rank-0/kernels.parquet"])
@pytest.mark.parametrize("what", ["fifo", "zero", "loop", "dangling", "folder"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, name, what):
    path = changed(tmp_path, "manifest.json", lambda d: d)
    file = path / name
    file.unlink()
    if what == "fifo":
        os.mkfifo(file)
    elif what == "folder":
        file.mkdir()
    else:
        file.symlink_to({"zero": "/dev/zero", "loop": file, "dangling": "nowhere"}[what])
    refusal(path)


def test_a_file_is_read_up_to_its_bound_only(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"x" * 100)
    assert read_regular(file, 100) == b"x" * 100
    with pytest.raises(OSError, match="larger"):
        read_regular(file, 99)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular("/dev/null")
    with pytest.raises(ValueError, match="deeply"):
        decode(b"[" * 100_000)


def test_a_table_that_claims_more_rows_than_it_can_hold_is_not_read(tmp_path):
    file = tmp_path / "waits.parquet"
    pl.select(thread=pl.repeat(1, 5_000_000, dtype=pl.Int64)).write_parquet(file)
    assert file.stat().st_size < 5_000_000 / 64
    with pytest.raises(NotASoundingError, match="claims 5,000,000 rows"):
        scanned(file)


WRITTEN = {
    "a device per row": ({"device": list(range(3_000)), "start_ns": 0, "end_ns": 1}, "3,000 devices"),
    "a row that ends early": ({"device": [0], "start_ns": 2, "end_ns": 1}, "ends before it begins"),
    "a time out of range": ({"device": [0], "start_ns": 0, "end_ns": 2**62}, "impossible value"),
    "a device that fits no column": ({"device": [2**40], "start_ns": 0, "end_ns": 1}, "too large"),
    "no stream": ({"device": [0], "start_ns": 0, "end_ns": 1, "stream": None}, "stream lacks a value"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_importers_cannot_write_what_readers_refuse(tmp_path, name):
    columns, why = WRITTEN[name]
    kernels = pl.DataFrame({"stream": 7, "kind": "compute", "name": "k"} | columns)
    with pytest.raises(BadInputError, match=why):
        Writer(tmp_path / "s.fathom").write(0, "kernels", kernels)
    assert not list(tmp_path.rglob("*.parquet"))


MANIFESTS = {
    "5,000 ranks": lambda d: d | {"ranks": [{"rank": n} for n in range(5_000)]},
    "200,000 ranks": lambda d: d | {"ranks": [{"rank": n} for n in range(200_000)]},
    "a rank twice": lambda d: d | {"ranks": [{"rank": 0}, {"rank": 0}]},
    "a negative rank": lambda d: d | {"ranks": [{"rank": -1}]},
    "a checksum of another file": lambda d: d | {"checksums": {"../../etc/passwd": 1}},
    "a checksum of an absolute path": lambda d: d | {"checksums": {"/dev/zero": 1}},
    "an endless phase": lambda d: d | {"phases": [{"rank": 0, "phase": "clean", "burst": 1, "start_ns": 0,
                                                   "end_ns": 2**62}]},
    "facts of a foreign form": lambda d: d | {"ranks": [{"rank": 0, "facts": {"loaders": 5}}]},
    "a command that is a number": lambda d: d | {"command": 5},
}  # fmt: skip


@pytest.mark.parametrize("what", MANIFESTS)
def test_a_manifest_that_contradicts_its_folder_is_refused(tmp_path, what):
    assert "damaged" in refusal(changed(tmp_path, "manifest.json", MANIFESTS[what]))


def test_json_that_is_nested_too_deeply_is_refused(tmp_path):
    path = changed(tmp_path, "manifest.json", lambda d: d)
    for name in ("machine.json", "manifest.json"):
        (path / name).write_text('{"format": 1, "x": ' + "[" * 200_000 + "]" * 200_000 + "}")
        refusal(path)


MACHINES = {
    "a list": lambda d: [d],
    "GPUs that are a word": lambda d: d | {"gpus": "two"},
    "GPUs of one index": lambda d: d | {"gpus": [{"index": 0}, {"index": 0}]},
    "a host that is a number": lambda d: d | {"host": 5},
    "an endless number": lambda d: d | {"host": {"memory_bytes": 10**40}},
    "no number": lambda d: d | {"x": [float("nan")]},
}


@pytest.mark.parametrize("what", MACHINES)
def test_a_machine_file_of_another_form_is_refused(tmp_path, what):
    assert "damaged" in refusal(changed(tmp_path, "machine.json", MACHINES[what]))


def test_readers_open_files_through_the_one_opener():
    """Any other way would block on a FIFO or read /dev/zero until memory is full."""
    allowed = {
        "sounding/packing.py",
        "sounding/kineto/stream.py",
        "sounding/ncu/report.py",
        "sounding/ncu/lines.py",
        "report/page/page.py",  # reads files of this package
    }
    opening = re.compile(r"\.read_bytes\(|\.read_text\(|\.open\(\"r|json\.load\(|(?<![\w.])open\(")
    for room in ("sounding", "analysis", "diagnosis", "report", "tips"):
        for file in (SOURCE / "fathom" / room).rglob("*.py"):
            name = file.relative_to(SOURCE / "fathom").as_posix()
            assert name in allowed or not opening.search(file.read_text()), name


def test_a_sounding_of_this_form_is_opened(tmp_path):
    path = changed(tmp_path, "manifest.json", lambda d: d)
    assert open_store(path).table("kernels").collect().height == 12
