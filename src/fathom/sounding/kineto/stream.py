"""Cuts a trace of any size into lists of whole events and decodes one list after the other.

A file is cut where its text looks like the seam between two events. Decoding shows whether it is one: only
whole events leave no string and no bracket open. Where that fails, the piece is taken apart token by token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fathom.sounding.kineto.events import Decoder, Event
from fathom.sounding.kineto.source import Source
from fathom.sounding.kineto.structure import BETWEEN, MalformedError, scan

LONGEST = 64 << 20  # bytes of one event, or of what stands before or after the events
_SAMPLE = 1 << 16  # bytes that mostly hold two events
_PLACE = re.compile(r"\(byte (\d+)\)")
_OPENING = re.compile(rb'"traceEvents"\s*:\s*\[')
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_BOM = b"\xef\xbb\xbf"
_CUT_OFF = "it ends in the middle, as when a profiler is stopped while it writes; record it again"
_OTHER = "it is JSON, but no trace: it has no list of traceEvents"


class TraceStream:
    """Iterates over a trace's events, block by block; afterwards `meta` holds the other keys of the file.

    With `exact` the events' times stay text. Raises BadInputError where the file is no trace, or cannot be
    read to its end.
    """

    def __init__(self, path: Path, exact: bool = False) -> None:
        self._decoder = Decoder(exact)
        self.meta: dict[str, Any] = {}
        self._source = Source(path)
        self._blocks = iter(self._source)
        self._bare = False  # a list of events without an object around it
        self._seam = b""  # what stands between two events here, their brackets included

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

    def _more(self, held: int, what: str = "hold no whole event") -> bytes:
        """At least as much of the file again as is `held`, so that long events take few attempts."""
        if held > LONGEST:
            raise self._source.bad(f"more than {LONGEST >> 20} MiB of it {what}")
        pieces, size = [], 0
        while size <= held and (piece := next(self._blocks, b"")):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def _take(self, text: bytes) -> tuple[list[Event], bytes, bool]:
        """(the events that are whole, the text after them, whether their list ended there)."""
        if text[:1] != b"{":
            text = text.lstrip(BETWEEN)
        self._seam = self._seam or _find_seam(text)
        end = len(text) if self._seam else 0
        while (cut := text.rfind(self._seam, 0, end)) > 0:
            whole = b"".join((b"[", memoryview(text)[: cut + 1], b"]"))
            try:
                return self._decoder.all(whole), text[cut + len(self._seam) - 1 :], False
            except _UNDECODABLE as error:
                end = min(_place(error), cut)
        return self._take_slowly(text)

    def _take_slowly(self, text: bytes) -> tuple[list[Event], bytes, bool]:
        try:
            found = scan(text)
        except MalformedError as error:
            raise self._source.bad(str(error)) from None
        spans, closed = found.spans, found.closed
        if closed is not None:
            rest = text[closed + 1 :]
        else:
            rest = text[spans[-1][1] :] if spans else text
        return self._decode(text, spans), rest, closed is not None

    def _decode(self, text: bytes, spans: list[tuple[int, int]]) -> list[Event]:
        if not spans:
            return []
        whole = b"[" + text[spans[0][0] : spans[-1][1]] + b"]"
        try:
            return self._decoder.all(whole)
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
        """Whether `text` opens the list of the outermost object, and not of something within."""
        try:
            self.meta = msgspec.json.decode(text.removeprefix(_BOM) + b"]}", type=dict[str, Any])
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

    def _decode_tail(self, tail: bytes) -> dict[str, Any]:
        try:
            tail_keys: dict[str, Any] = msgspec.json.decode(b'{"":0' + tail, type=dict[str, Any])
        except msgspec.DecodeError as error:
            why = (
                _CUT_OFF
                if "truncated" in str(error)
                else f"what follows its events is not valid JSON ({error})"
            )
            raise self._source.bad(why) from None
        except _UNDECODABLE:
            raise self._source.bad("what follows its events cannot be decoded") from None
        if "traceEvents" in tail_keys:
            raise self._source.bad("it holds traceEvents twice")
        del tail_keys[""]
        return tail_keys


def _find_seam(text: bytes) -> bytes:
    """What stands between the first two events, their brackets included: most others are alike."""
    try:
        spans = scan(text[:_SAMPLE]).spans
    except MalformedError:
        return b""
    return text[spans[0][1] - 1 : spans[1][0] + 1] if len(spans) > 1 else b""


def _place(error: Exception) -> int:
    """Up to where the text decoded, as far as the error tells: the list of events may have ended there."""
    found = _PLACE.search(str(error))
    return int(found[1]) if found else 0


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
