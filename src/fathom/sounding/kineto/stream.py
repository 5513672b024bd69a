"""Read a trace of any size, plain or gzipped: cut it into lists of events, and decode one after the other.

A file is cut where its text looks like the text between two events (the seam). If the cut is wrong, a string
or a bracket is left open and decoding fails; then the piece is parsed token by token.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar, cast

import msgspec
from isal import igzip_threaded
from isal.igzip_lib import IsalError

from fathom.errors import BadInputError, file_errors, unimportable
from fathom.regular import open_regular
from fathom.sounding.events.arrays import InexactError
from fathom.sounding.kineto.events import KINDS, Decoder, Event, Kinds

LONGEST = 64 << 20  # most bytes of one event, or of the keys before or after the events
_SAMPLE = 1 << 16  # bytes that usually contain two events
_PLACE = re.compile(r"\(byte (\d+)\)")
_OPENING = re.compile(rb'"traceEvents"\s*:\s*\[')
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_BOM = b"\xef\xbb\xbf"
_CUT_OFF = "it is truncated, as happens when a profiler is stopped while writing; record it again"
_OTHER = "it is JSON but not a trace: it has no list of traceEvents"
BLOCK = 1 << 19  # bytes; fits into the CPU's cache, where decoding is twice as fast
_AHEAD = 1 << 21  # bytes decompressed at once: enough work while the decoder has the GIL
_GZIP = b"\x1f\x8b"
_BROKEN: Any = (EOFError, IsalError, zlib.error, OSError)
# A whole string, a bracket, or a quote whose string does not end within the piece.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}"]', re.DOTALL)
BETWEEN = b", \t\r\n"
_SEPARATOR = re.compile(rb"\s*,?\s*")


class TraceStream:
    """Iterate over a trace's events in lists; afterwards `meta` has the other keys of the file.

    With `exact`, the events' times stay text. Raises BadInputError if the file is not a trace or cannot be
    read completely.
    """

    def __init__(self, path: Path, exact: bool = False, kinds: Kinds = KINDS) -> None:
        self._decoder = Decoder(exact, kinds)
        self.meta: dict[str, object] = {}
        self._source = TraceSource(path)
        self._blocks = iter(self._source)
        self._bare = False  # whether the file is a list of events without an object around it
        self._seam = b""  # text between two events of this file, with their brackets

    def close(self) -> None:
        """Close the file, and end the thread that decompresses it.

        If the garbage collector ended it while another thread starts, Python 3.11 would lock up.
        """
        self._blocks.close()

    def __iter__(self) -> Iterator[list[Event]]:
        text, closed = self._open_list(), False
        while not closed:
            events, text, closed = self._take(text)
            yield events
            if not closed and not (more := self._more(len(text))):
                events, text, closed = self._take_slowly(text)
                if not closed:
                    raise self._source.bad(_CUT_OFF)
                yield events
            elif not closed:
                text += more
        self._read_tail(text)

    def _more(self, pending: int, what: str = "contain no complete event") -> bytes:
        """Return more than `pending` further bytes, or all that remain, so that long events take few tries.

        Raises BadInputError if `pending` is already over LONGEST; `what` ends its message.
        """
        if pending > LONGEST:
            raise self._source.bad(f"more than {LONGEST >> 20} MiB of it {what}")
        pieces, size = [], 0
        while size <= pending and (piece := next(self._blocks, b"")):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def _take(self, text: bytes) -> tuple[list[Event], bytes, bool]:
        """Return complete events, the unparsed rest, and whether the list ended there."""
        if text[:1] != b"{":
            text = text.lstrip(BETWEEN)
        self._seam = self._seam or _find_seam(text)
        end = len(text) if self._seam else 0
        while (cut := text.rfind(self._seam, 0, end)) > 0:
            array = b"".join((b"[", memoryview(text)[: cut + 1], b"]"))
            try:
                return self._decoder.all(array), text[cut + len(self._seam) - 1 :], False
            except _UNDECODABLE as error:
                end = min(_place(error), cut)
        return self._take_slowly(text)

    def _take_slowly(self, text: bytes) -> tuple[list[Event], bytes, bool]:
        try:
            structure = scan(text)
        except MalformedError as error:
            raise self._source.bad(str(error)) from None
        spans, closed = structure.spans, structure.closed
        if closed is not None:
            rest = text[closed + 1 :]
        else:
            rest = text[spans[-1][1] :] if spans else text
        return self._decode(text, spans), rest, closed is not None

    def _decode(self, text: bytes, spans: list[tuple[int, int]]) -> list[Event]:
        if not spans:
            return []
        array = b"[" + text[spans[0][0] : spans[-1][1]] + b"]"
        try:
            return self._decoder.all(array)
        except _UNDECODABLE:
            return [self._decode_damaged(text[start:end]) for start, end in spans]

    def _decode_damaged(self, text: bytes) -> Event:
        try:
            return self._decoder.damaged(text)
        except UnicodeDecodeError:
            raise self._source.bad("it is not valid UTF-8") from None
        except ValueError as error:
            raise self._source.bad(f"it is not valid JSON ({error})") from None
        except RecursionError:
            raise self._source.bad("one of its events is nested too deeply") from None

    def _open_list(self) -> bytes:
        """Read up to the first event; the keys before it go to `meta`."""
        text = b""
        while more := self._more(len(text)):
            text += more
            begin = text.removeprefix(_BOM).lstrip()
            if begin[:1] == b"[":
                self._bare = True
                return begin[1:]
            if begin and begin[:1] != b"{":
                raise self._source.bad("it is neither a JSON object nor a list of events")
            for opening in _OPENING.finditer(text):
                if self._read_head(text[: opening.end()]):
                    return text[opening.end() :]
        raise self._source.bad(_why_no_list(text))

    def _read_head(self, text: bytes) -> bool:
        """Return whether `text` opens the list of the outermost object, not of a nested one."""
        try:
            self.meta = msgspec.json.decode(text.removeprefix(_BOM) + b"]}", type=dict[str, object])
        except _UNDECODABLE:
            return False
        return self.meta.pop("traceEvents", None) == []

    def _read_tail(self, rest: bytes) -> None:
        pieces = [rest]
        while more := self._more(sum(map(len, pieces)), "follow its events"):
            pieces.append(more)
        tail = b"".join(pieces).strip()
        if not self._bare:
            self.meta.update(self._decode_tail(tail))
        elif tail:
            raise self._source.bad("something follows its list of events")

    def _decode_tail(self, tail: bytes) -> dict[str, object]:
        try:
            tail_keys: dict[str, object] = msgspec.json.decode(b'{"":0' + tail, type=dict[str, object])
        except msgspec.DecodeError as error:
            why = (
                _CUT_OFF
                if "truncated" in str(error)
                else f"the text after its events is not valid JSON ({error})"
            )
            raise self._source.bad(why) from None
        except _UNDECODABLE:
            raise self._source.bad("the text after its events cannot be decoded") from None
        if "traceEvents" in tail_keys:
            raise self._source.bad("it has traceEvents twice")
        del tail_keys[""]
        return tail_keys


def _find_seam(text: bytes) -> bytes:
    """Return the text between the first two events, with their brackets; most others are equal."""
    try:
        spans = scan(text[:_SAMPLE]).spans
    except MalformedError:
        return b""
    return text[spans[0][1] - 1 : spans[1][0] + 1] if len(spans) > 1 else b""


def _place(error: Exception) -> int:
    """Return the byte at which decoding failed, or 0 if unknown; the list of events may have ended there."""
    match = _PLACE.search(str(error))
    return int(match[1]) if match else 0


def _why_no_list(text: bytes) -> str:
    if not text.strip():
        return "it is empty"
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        return _CUT_OFF if "truncated" in str(error) else f"it is not valid JSON ({error})"
    except (UnicodeDecodeError, RecursionError) as error:
        return f"it is not valid JSON ({type(error).__name__})"
    return _OTHER


class Collector(Protocol):
    """Takes the events of a trace, one block after the other."""

    def add(self, events: list[Event]) -> None:
        """Add one block. Raises InexactError if the events' times must be read as text."""


C = TypeVar("C", bound=Collector)


def collected(path: Path, new: Callable[[], C], kinds: Kinds = KINDS) -> tuple[C, dict[str, Any]]:
    """Return a new collector with the events of a trace, and the other keys of the file.

    Times are read as float64, which suits most traces; if it is too coarse, the file is read again with times
    as text. Raises BadInputError like TraceStream.
    """
    try:
        return _collected(TraceStream(path, False, kinds), new())
    except InexactError:
        return _collected(TraceStream(path, True, kinds), new())


def _collected(stream: TraceStream, collector: C) -> tuple[C, dict[str, Any]]:
    with closing(stream):
        for events in stream:
            collector.add(events)
    return collector, stream.meta


class TraceSource:
    """Iterate over a file in blocks; gzipped files are decompressed on a separate thread."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Generator[bytes]:
        with file_errors(self.path), open_regular(self.path) as file:
            packed = file.read(2) == _GZIP
        try:
            with self._open(packed) as stream:
                while block := stream.read(BLOCK):
                    yield block
        except _BROKEN as error:
            raise self.bad(_reason(error, packed)) from None

    def _open(self, packed: bool) -> BinaryIO:
        if not packed:
            return self.path.open("rb")
        return cast(BinaryIO, igzip_threaded.open(self.path, "rb", threads=1, block_size=_AHEAD))

    def bad(self, why: str) -> BadInputError:
        """Return the error for a file that cannot be imported."""
        return unimportable(self.path, why)


def _reason(error: Exception, packed: bool) -> str:
    if not packed:
        return f"it could not be read to its end ({error})"
    if isinstance(error, EOFError):
        return "its gzip stream is cut off; copy or record it again"
    return f"its gzip stream is damaged ({error}); copy or record it again"


class MalformedError(ValueError):
    """The piece is not a list of JSON objects."""


@dataclass
class Structure:
    """The `spans` of complete objects in a piece of a list, and the index at which the list is `closed`.

    `closed` is None if the list does not end in this piece.
    """

    spans: list[tuple[int, int]] = field(default_factory=list)
    closed: int | None = None


def scan(piece: bytes) -> Structure:
    """Find the objects in `piece`, a part of a list's text. Raises MalformedError."""
    structure = Structure()
    depth = end = start = 0
    for token in _TOKEN.finditer(piece):
        mark = token[0]
        if mark == b'"':
            break
        if mark in b"{[":
            if depth == 0:
                _nothing_between(piece, end, token.start())
                if mark != b"{":
                    raise MalformedError("its list of events has other entries than events")
                start = token.start()
            depth += 1
        elif mark in b"]}":
            if depth == 0:
                _nothing_between(piece, end, token.start())
                structure.closed = token.start() if mark == b"]" else None
                break
            depth -= 1
            if depth == 0:
                end = token.end()
                structure.spans.append((start, end))
    return structure


def _nothing_between(piece: bytes, end: int, start: int) -> None:
    if not _SEPARATOR.fullmatch(piece, end, start):
        raise MalformedError("there is text between its events")
