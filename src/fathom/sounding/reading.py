"""Read one file of any importer as traces: one per process that it recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from fathom.errors import BadInputError, file_errors, unimportable
from fathom.regular import open_regular
from fathom.sounding.chrome import read_chrome
from fathom.sounding.events import Trace
from fathom.sounding.events.database import MAGIC, Database
from fathom.sounding.events.steps import steps_from_ranges
from fathom.sounding.kineto import NothingReadError, read_trace
from fathom.sounding.nsys import exported, is_nsys, read_nsys
from fathom.sounding.otel import is_otlp, read_otel
from fathom.sounding.rocprof import is_document, is_rocpd, read_document, read_rocpd

_XPLANE = ".xplane.pb"


def read_all(paths: list[Path], step_range: str | None = None) -> Iterator[tuple[Path, list[Trace]]]:
    """Yield each file with its traces; files of OpenTelemetry spans together, with the first one's path.

    Raises BadInputError like `read_traces`, and if spans are to have steps.
    """
    spans = [path for path in paths if not path.name.endswith(_XPLANE) and is_otlp(path)]
    if spans and step_range:
        raise BadInputError(f"{spans[0]} has spans of requests and no steps; leave --step-range out.")
    if spans:
        yield spans[0], [read_otel(spans)]
    for path in paths:
        if path not in spans:
            yield path, read_traces(path, step_range)


def read_traces(path: Path, step_range: str | None = None) -> list[Trace]:
    """Return the traces in a file that have events; ranges that match `step_range` are their steps.

    Raises BadInputError if the file is none that Fathom knows, cannot be read, has no such range or no event.
    """
    if path.name.endswith(_XPLANE):
        raise unimportable(path, "XProf's protocol buffers are not read; import the .trace.json.gz beside it")
    with exported(path) as file:
        traces = [trace for trace in _read(file, path, step_range) if any(map(len, trace.tables.values()))]
    if not traces:
        raise unimportable(path, "none of its events has a valid name, start and end")
    return traces


def _read(file: Path, path: Path, step_range: str | None) -> list[Trace]:
    if _head(file).startswith(MAGIC):
        return _read_database(file, path, step_range)
    if is_document(file):
        return read_document(file, step_range)
    return [_read_json(file, step_range)]


def _read_json(file: Path, step_range: str | None) -> Trace:
    """Read a trace of torch.profiler, or another one in Chrome's format, whose categories Kineto lacks.

    Annotated regions are the steps of a torch.profiler trace if `step_range` names them or it has no steps.
    """
    try:
        trace = read_trace(file)
    except NothingReadError:
        return read_chrome(file, step_range)
    if step_range or trace.steps.is_empty():
        regions = trace.tables["ops"].filter(pl.col("kind") == "annotation")
        trace.steps, _ = steps_from_ranges(regions, step_range)
    return trace


def _head(path: Path) -> bytes:
    with file_errors(path), open_regular(path) as file:
        return file.read(len(MAGIC))


def _read_database(file: Path, path: Path, step_range: str | None) -> list[Trace]:
    with Database(file, path) as base:
        if is_nsys(base):
            return read_nsys(base, step_range)
        if is_rocpd(base):
            return read_rocpd(base, step_range)
        raise base.bad("it is a database, but not an export of Nsight Systems or of rocprofv3")
