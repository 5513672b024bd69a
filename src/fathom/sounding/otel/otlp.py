"""Read spans from files of the OpenTelemetry collector's file exporter, in JSON or protocol buffers.

In JSON, a file is one object per line, or one object. In protocol buffers, each object follows its length in
four bytes, big-endian. Objects are OTLP's `TracesData` (opentelemetry-proto 1.x).
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import msgspec

from fathom.errors import BadInputError, file_errors, unimportable
from fathom.regular import open_regular
from fathom.sounding.kineto.stream import TraceSource
from fathom.units import GIB

EXTRA = "Spans in protocol buffers need a package: pip install 'fathom-perf[otel]'."
_MOST = 1 * GIB  # bytes of a file, decompressed: it is decoded at once
_HEAD = 4096
_OBJECT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"resource_?(?:[Ss]pans|[Mm]etrics|[Ll]ogs)"\s*:')
_LENGTH = struct.Struct(">I")
_FIRST = 0x0A  # first byte of a TracesData: its field 1, with a length
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Value(msgspec.Struct, frozen=True, rename="camel"):
    """The value of an attribute; lists and maps are not read."""

    string_value: str | None = None
    int_value: int | None = None
    double_value: float | None = None
    bool_value: bool | None = None


class Attribute(msgspec.Struct, frozen=True):
    """A fact about a span, its process or an event."""

    key: str = ""
    value: Value | None = None


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """Something that happened within a span."""

    name: str = ""
    time_unix_nano: int = 0


class Span(msgspec.Struct, frozen=True, rename="camel"):
    """A stretch of time; `trace_id` and `span_id` identify it."""

    name: str = ""
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str | None = None
    start_time_unix_nano: int = 0
    end_time_unix_nano: int = 0
    attributes: list[Attribute] | None = None
    events: list[Event] | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.trace_id, self.span_id

    @property
    def parent(self) -> tuple[str, str]:
        """The identity of the span around it."""
        return self.trace_id, self.parent_span_id or ""

    @property
    def facts(self) -> dict[str, str | float]:
        """Its attributes by name: texts, numbers and booleans."""
        return dict(_known(self.attributes))


class Scope(msgspec.Struct, frozen=True):
    """The spans of one library."""

    spans: list[Span] | None = None


class Resource(msgspec.Struct, frozen=True):
    """The process that made the spans."""

    attributes: list[Attribute] | None = None


class OfResource(msgspec.Struct, frozen=True, rename="camel"):
    """The spans of one process."""

    resource: Resource | None = None
    scope_spans: list[Scope] | None = None


class TracesData(msgspec.Struct, frozen=True, rename="camel"):
    """One object of a file; without spans in objects of metrics or logs."""

    resource_spans: list[OfResource] | None = None


@dataclass
class Spans:
    """The spans of some files, each once."""

    spans: dict[tuple[str, str], Span] = field(default_factory=dict)
    services: set[str] = field(default_factory=set)  # names of the processes
    damaged: int = 0  # objects that could not be decoded
    twice: int = 0  # spans that occur again


def is_otlp(path: Path) -> bool:
    """Return whether a file begins like one of the collector's; plain or gzipped. Raises BadInputError."""
    source = iter(TraceSource(path))
    try:
        head = next(source, b"")[:_HEAD]
    finally:
        source.close()
    return bool(_OBJECT.match(head)) or _is_framed(head, path)


def _is_framed(head: bytes, path: Path) -> bool:
    """Return whether the file begins with a length that fits into it, and a TracesData."""
    if len(head) <= _LENGTH.size or head[_LENGTH.size] != _FIRST or head[:2] == b"\x1f\x8b":
        return False
    with file_errors(path), open_regular(path) as file:
        size = file.seek(0, 2)
    return 2 < _LENGTH.unpack_from(head)[0] <= size - _LENGTH.size


def read_spans(paths: list[Path]) -> Spans:
    """Return the spans of all files.

    Objects that cannot be decoded are counted. Raises BadInputError if a file cannot be read, or none of its
    objects can be decoded.
    """
    result = Spans()
    for path in paths:
        objects, damaged = 0, result.damaged
        data = _content(path)
        for read in _objects(data):
            if read is None:
                result.damaged += 1
                continue
            objects += 1
            _collect(read, result)
        if not objects:
            why = (
                "none of its objects is a TracesData of OpenTelemetry"
                if result.damaged > damaged
                else "it is empty"
            )
            raise unimportable(path, why)
    return result


def _content(path: Path) -> bytes:
    pieces, size, source = [], 0, TraceSource(path)
    for block in source:
        pieces.append(block)
        size += len(block)
        if size > _MOST:
            raise source.bad(f"it has more than {_MOST >> 30} GiB of spans; import a part of it")
    return b"".join(pieces)


def _objects(data: bytes) -> Iterator[TracesData | None]:
    """Yield the objects of a file in order; None for one that cannot be decoded."""
    if not _OBJECT.match(data):
        return _framed(data)
    data = data.removeprefix(b"\xef\xbb\xbf")
    lines = data.splitlines()
    first = next(filter(None, map(bytes.strip, lines)), b"")
    if _decoded(first) is None and (entire := _decoded(data)) is not None:
        return iter([entire])
    return (_decoded(line) for line in lines if line.strip())


def _decoded(line: bytes) -> TracesData | None:
    try:
        # Not strict: OTLP writes integers of 64 bits as text.
        return msgspec.json.decode(line, type=TracesData, strict=False)
    except _UNDECODABLE:
        return None


def _framed(data: bytes) -> Iterator[TracesData | None]:
    """Yield the objects of a file of protocol buffers."""
    try:
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.trace.v1.trace_pb2 import TracesData as Message
    except ImportError:
        raise BadInputError(EXTRA) from None
    at = 0
    while at + _LENGTH.size <= len(data):
        size = _LENGTH.unpack_from(data, at)[0]
        at += _LENGTH.size
        message = data[at : at + size]
        at += size
        try:
            if len(message) < size:
                raise DecodeError("cut off")
            yield _decoded(json.dumps(MessageToDict(Message.FromString(message))).encode())
        except (DecodeError, ValueError, RecursionError):
            yield None


def _collect(read: TracesData, result: Spans) -> None:
    for of in read.resource_spans or ():
        service = dict(_known(of.resource.attributes if of.resource else None)).get("service.name")
        spans = list(chain.from_iterable(scope.spans or () for scope in of.scope_spans or ()))
        if spans and isinstance(service, str):
            result.services.add(service)
        for span in spans:
            result.twice += span.key in result.spans
            result.spans[span.key] = span


def _known(attributes: list[Attribute] | None) -> Iterator[tuple[str, str | float]]:
    for attribute in attributes or ():
        of = attribute.value
        if of is None:
            continue
        for value in (of.string_value, of.int_value, of.double_value, of.bool_value):
            if value is not None:
                yield attribute.key, value
                break
