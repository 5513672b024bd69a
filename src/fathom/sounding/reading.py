"""Read one file of any importer as traces: one per process that it recorded."""

from __future__ import annotations

from pathlib import Path

from fathom.errors import BadInputError, file_error
from fathom.regular import open_regular
from fathom.sounding.events import Trace
from fathom.sounding.events.database import MAGIC, Database
from fathom.sounding.kineto import read_trace
from fathom.sounding.nsys import exported, is_nsys, read_nsys


def read_traces(path: Path, step_range: str | None = None) -> list[Trace]:
    """Return the traces in a file; ranges that match `step_range` are their steps.

    Raises BadInputError if the file is none that Fathom knows, cannot be read, or has no such range.
    """
    with exported(path) as file:
        if _head(file).startswith(MAGIC):
            return _read_database(file, path, step_range)
        return [read_trace(file)]


def _head(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(len(MAGIC))
    except OSError as error:
        raise BadInputError(file_error(path, error)) from None


def _read_database(file: Path, path: Path, step_range: str | None) -> list[Trace]:
    with Database(file, path) as base:
        if is_nsys(base):
            return read_nsys(base, step_range)
        raise base.bad("it is a database, but not an export of Nsight Systems or of rocprofv3")
