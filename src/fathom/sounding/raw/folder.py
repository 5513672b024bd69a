"""Read the folder `raw/` into Python objects. After a crash, lines may be torn and files missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from fathom.errors import BadInputError, file_error
from fathom.regular import RECORDS as LARGEST
from fathom.regular import decode, read_json, read_regular
from fathom.sounding.raw.shape import RECORDS, TELEMETRY, checked, checked_file

Record = dict[str, Any]


@dataclass
class Process:
    """The records of one process, by kind (`t`)."""

    pid: int
    records: dict[str, list[Record]] = field(default_factory=dict)
    torn: int = 0  # number of lines that are not valid records, except the last line

    def of(self, kind: str) -> list[Record]:
        """Return all records of one kind, in the order of writing."""
        return self.records.get(kind, [])

    @property
    def head(self) -> Record:
        """The `process` record; empty if it was lost."""
        return self.of("process")[0] if self.of("process") else {}

    @property
    def rank(self) -> int:
        """The process's rank; 0 in a program that is not distributed."""
        return self.head.get("rank") or 0

    @property
    def clock(self) -> Record | None:
        """The last `clock` record, which names the source of steps from its step on; None without one."""
        return self.of("clock")[-1] if self.of("clock") else None


@dataclass
class Raw:
    """Everything in `raw/`."""

    path: Path
    launch: Record
    end: Record
    processes: list[Process]
    telemetry: list[Record]
    problems: list[str] = field(default_factory=list)

    def trace(self, file: str) -> Path | None:
        """Return the path of a trace, plain or compressed; None if it is missing."""
        for path in (self.path / file, self.path / f"{file}.gz"):
            if path.is_file():
                return path
        return None


def read(folder: Path) -> Raw:
    """Read `folder/raw`. Raises BadInputError if it does not exist or cannot be read."""
    path = folder / "raw"
    if not path.is_dir():
        raise BadInputError(f"{folder} has no raw records; give the folder that `fathom run --raw` wrote.")
    problems: list[str] = []
    try:
        processes = [_process(file) for file in sorted(path.glob("proc-*.jsonl"))]
        telemetry = [record for record in _lines(path / "telemetry.jsonl", []) if _is_reading(record)]
        launch, end = _object(path / "launch.json", problems), _object(path / "end.json", problems)
    except OSError as error:
        raise BadInputError(file_error(error.filename, error)) from None
    return Raw(path, launch, end, processes, telemetry, problems)


def _process(file: Path) -> Process:
    torn: list[int] = []
    pid = file.stem.removeprefix("proc-")
    process = Process(int(pid) if pid.isdigit() else 0)
    for record in _lines(file, torn):
        try:
            unpacked = list(_PACKED.get(str(record.get("t")), _single)(record))
        except (KeyError, TypeError, ValueError, RecursionError):
            torn.append(0)
            continue
        for row in unpacked:
            process.records.setdefault(str(row.get("t")), []).append(row)
    process.torn = len(torn)
    _add_unfinished(process, file.with_name(f"summary-{pid}.json"))
    return process


def _add_unfinished(process: Process, file: Path) -> None:
    """Add the window of counted steps that a killed process had open, unless it was finished later."""
    summaries = process.records.setdefault("summary", [])
    finished = {record["k"] for record in summaries}
    for record in _lines(file, []):
        try:
            if checked(record, RECORDS["summary"]).k not in finished:
                summaries.append(record)
        except ValueError:
            process.torn += 1


def _marks(run: Record) -> Iterator[Record]:
    """Yield the marks of a run; consecutive marks differ only in their time."""
    checked(run, RECORDS["marks"])
    about = {**run, "t": "mark"}
    for position, ns in enumerate(run["ns"]):
        yield {**about, "k": run["k"] + position, "ns": ns}


def _rows(kind: str) -> Callable[[Record], Iterator[Record]]:
    """Return a function that yields the rows of a table as records of this kind."""

    def rows(table: Record) -> Iterator[Record]:
        for values in table["rows"]:
            row = {"t": kind, **dict(zip(table["columns"], values, strict=True))}
            checked(row, RECORDS[kind])
            yield row

    return rows


def _single(record: Record) -> Iterator[Record]:
    """Yield the record; the known fields alone if they are kept as they are."""
    kind = str(record.get("t"))
    known = checked(record, RECORDS[kind]) if kind in RECORDS else None
    yield {"t": kind, **msgspec.to_builtins(known)} if kind in _KEPT else record


_PACKED = {
    "marks": _marks,
    "batches": _rows("batch"),
    "requests": _rows("request"),
    "handed": _rows("handed"),
    "spans": _rows("span"),
    "iterations": _rows("iteration"),
}
_KEPT = ("dynamo", "loader")


def _lines(file: Path, torn: list[int]) -> Iterator[Record]:
    if not file.exists():
        return
    lines = read_regular(file, LARGEST).split(b"\n")
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            record = decode(line)
            if not isinstance(record, dict):
                raise ValueError
            yield record
        except ValueError:
            if number < len(lines) - 1:
                torn.append(number)


def _object(file: Path, problems: list[str]) -> Record:
    try:
        record = read_json(file)
        return checked_file(file.name, record) if isinstance(record, dict) else {}
    except FileNotFoundError:
        return {}
    except ValueError:
        problems.append(f"{file.name} is damaged and was left out")
        return {}


def _is_reading(record: Record) -> bool:
    try:
        checked(record, TELEMETRY)
    except ValueError:
        return False
    return True
